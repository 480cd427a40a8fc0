# One image for receiver, worker and the operator's commands:
#   docker build -t reliq . && docker run --env-file .env reliq doctor
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/reliq \
    UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1
RUN python -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --quiet 'uv>=0.8,<1'
WORKDIR /src
# What the lock names comes first: a change of the code alone takes none of it anew.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN /opt/uv/bin/uv sync --quiet --frozen --no-cache --no-default-groups --extra speed --extra encryption --extra mail --no-install-project
COPY src src
RUN /opt/uv/bin/uv sync --quiet --frozen --no-cache --no-default-groups --extra speed --extra encryption --extra mail --no-editable

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent reliq
COPY --from=build /opt/reliq /opt/reliq
# An App of one's own goes to /app: COPY it there, or mount it, and name it in RELIQ_APP.
WORKDIR /app
ENV PATH=/opt/reliq/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RELIQ_HOST=0.0.0.0
USER reliq
EXPOSE 8000
# The worker's health where it has a port for it, else the receiver's. No proxy is asked.
HEALTHCHECK --interval=10s --timeout=4s --start-period=20s --retries=3 CMD ["python", "-c", "\
import http.client, os; env = os.environ.get; \
port = env('RELIQ_HEALTH_PORT') or env('RELIQ_PORT') or '8000'; \
asked = http.client.HTTPConnection('127.0.0.1', int(port), timeout=3); \
asked.request('GET', '/health'); \
raise SystemExit(asked.getresponse().status != 200)"]
ENTRYPOINT ["reliq"]
CMD ["serve"]
