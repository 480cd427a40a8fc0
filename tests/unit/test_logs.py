import io
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from reliq import logs


class Place(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Where lines go, until structlog is as it was."""
    config, handlers = structlog.get_config(), list(logging.root.handlers)
    place = Place()
    monkeypatch.setattr(sys, "stderr", place)
    logs.configure("json")
    yield place
    structlog.configure(**config)
    logging.root.handlers[:] = handlers


def test_a_line_and_its_end_are_one_write(place: Place):
    structlog.get_logger().info("worker.started")
    logs.info_each("attempt.ended", ["job_id"], [[1], [2]])

    assert [text.count("\n") for text in place.writes] == [1, 2]
    assert all(text.endswith("}\n") for text in place.writes)
