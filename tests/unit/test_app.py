"""What people compose an App of: what cannot work is refused where it is made, with its name."""

from datetime import timedelta
from functools import partial, wraps

import pytest

from reliq import DEFAULT, App, Cron, Handler, Hmac, Keep, RetryPolicy, Schedule, Source, Token
from reliq.domain.fields import is_coroutine, sort_of

SIGNED = Hmac(header="X-Signature")


def plain(*_):
    """Do nothing."""


async def coroutine(*_):
    """Do nothing, and wait for nothing."""


def generator(*_):
    yield


async def async_generator(*_):
    yield


class Called:
    async def __call__(self, *_):
        """Do nothing."""


class Ran:
    def __call__(self, *_):
        """Do nothing."""


def wrapped(function):
    @wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@pytest.mark.parametrize(
    ("function", "sort"),
    [
        (plain, "other"), (Ran(), "other"), (partial(plain, 1), "other"), (lambda _: None, "other"),
        (coroutine, "coroutine"), (Called(), "coroutine"), (partial(coroutine, 1), "coroutine"),
        (generator, "generator"), (async_generator, "async generator"), ("plain", "none"),
    ],
)  # fmt: skip
def test_what_calling_gives_is_known_before_the_call(function, sort):
    assert sort_of(function) == sort
    assert is_coroutine(function) == (sort == "coroutine")


def test_a_coroutine_function_is_one_under_a_decorator_too():
    assert is_coroutine(wrapped(coroutine))
    assert not is_coroutine(wrapped(plain))


@pytest.mark.parametrize(
    ("run", "fields", "said"),
    [
        (plain, {"time_limit": 5}, r"Handler\(plain\): time_limit=5: use a timedelta above 0"),
        (plain, {"time_limit": 0}, "time_limit=0"),
        (plain, {"time_limit": timedelta(0)}, "time_limit=0:00:00"),
        (plain, {"time_limit": timedelta(days=-1)}, "time_limit=-1 day"),
        (plain, {"retry": 3}, r"Handler\(plain\): retry=3: use RetryPolicy or RetryTable"),
        (plain, {"retry": DEFAULT}, "retry=Policy"),
        (plain, {"policy": None}, "policy=None: use Policy"),
        (plain, {"policy": RetryPolicy()}, "policy=RetryPolicy.*: use Policy"),
        (plain, {"isolated": "yes"}, "isolated='yes': use bool"),
        (plain, {"payload": dict}, "a payload's model is a dataclass"),
        (plain, {"payload": Keep, "upgrade": "v2"}, r"Handler\(plain\): upgrade='v2'"),
        (plain, {"payload": Keep, "upgrade": coroutine}, "upgrade=.*nobody awaits it"),
        (partial(coroutine, 1), {"time_limit": 5}, r"Handler\(coroutine\): time_limit"),
        (Called(), {"time_limit": 5}, r"Handler\(Called\): time_limit"),
        (generator, {}, r"Handler\(generator\): run=.*without yield"),
        (async_generator, {}, r"Handler\(async_generator\): run=.*without yield"),
        ("send", {}, r"Handler\(str\): run='send': use a function"),
    ],
)
def test_a_handler_that_cannot_work_is_refused_where_it_is_made(run, fields, said):
    with pytest.raises((ValueError, TypeError), match=said):
        Handler(run, **fields)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("shop", {"route": coroutine}, r"sources\['shop'\]: route=.*nobody awaits it"),
        ("shop", {"route": async_generator}, r"sources\['shop'\]: route="),
        ("shop", {"route": None}, "route=None"),
        ("shop", {"dedup_key": coroutine}, r"sources\['shop'\]: dedup_key="),
        ("shop", {"dedup_key": "id"}, "dedup_key='id'"),
        ("shop", {"dedup_key": generator}, "dedup_key="),
        ("shop", {"body_max": "1M"}, r"sources\['shop'\]: body_max='1M': use a whole number"),
        ("shop", {"body_max": 0}, "body_max=0"),
        ("shop", {"headers_kept": "X-Shop"}, r"sources\['shop'\]: headers_kept='X-Shop'"),
        ("shop", {"headers_kept": {b"X-Shop"}}, "headers_kept="),
        ("a b", {}, "the name of a source='a b': use letters and digits"),
        ("", {}, "the name of a source=''"),
        ("a/b", {}, "the name of a source='a/b'"),
        ("a__b", {}, "the name of a source='a__b'"),
        ("a-_b", {}, "the name of a source='a-_b'"),
        ("_a", {}, "the name of a source='_a'"),
        ("ä", {}, "the name of a source='ä'"),
        (7, {}, "a name in sources=7: use str"),
    ],
)
def test_a_source_that_cannot_work_is_refused_with_its_name(name, fields, said):
    with pytest.raises(ValueError, match=said):
        App(sources={name: Source(**{"signature": SIGNED, "route": plain} | fields)})


def test_a_signature_that_is_none_is_not_quoted_for_it_may_be_the_secret():
    with pytest.raises(ValueError, match=r"sources\['shop'\]: signature is no Hmac") as caught:
        App(sources={"shop": Source(signature="hunter2", route=plain)})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sources": [plain]}, r"App: sources=\[.*: use dict or Mapping"),
        ({"sources": {"shop": plain}}, r"App: sources\['shop'\] is no Source, but function$"),
        ({"handlers": plain}, "App: handlers="),
        ({"handlers": {"": plain}}, "the kind of a handler=''"),
        ({"handlers": {"x" * 201: plain}}, "use 1 to 200 bytes"),
        ({"handlers": {7: plain}}, "a name in handlers=7"),
        ({"handlers": {"job": None}}, r"handlers\['job'\]=None: use a function"),
        ({"handlers": {"job": generator}}, r"handlers\['job'\]=.*without yield"),
        ({"handlers": {"job": Handler}}, r"handlers\['job'\]=<class.*: use a function"),
        ({"schedules": Schedule(kind="job", when=Cron("* * * * *", zone="UTC"))}, "use list or"),
        ({"schedules": ["09:00"]}, r"App: schedules\[0\]='09:00': use Schedule"),
        ({"close": coroutine}, "App: close=.*: use list or tuple"),
        ({"close": [plain]}, r"App: close\[0\]=.*: use a coroutine function"),
        ({"needs": "alert_url"}, "App: needs='alert_url': use a collection of texts"),
        ({"needs": [7]}, r"App: needs=\[7\]"),
        ({"secrets": {7}}, r"App: secrets=\{7\}"),
    ],
)
def test_an_app_that_cannot_work_is_refused_with_the_field(fields, said):
    with pytest.raises(ValueError, match=said):
        App(**fields)


def test_what_can_work_is_taken():
    app = App(
        sources={
            "My-Shop_eu-2": Source(signature=Token(header="X"), route=generator, body_max=1),
            "other": Source(signature=SIGNED, route=Ran(), headers_kept=["X-Shop"]),
        },
        handlers={
            "plain": plain, "lambda": lambda _: None, "partial": partial(coroutine, 1),
            "object": Called(), "method": Called().__call__, "wrapped": wrapped(coroutine),
            "handler": Handler(plain, None, timedelta(seconds=5), isolated=True),
        },
        close=[coroutine, Called(), lambda: coroutine(None), wrapped(coroutine)],
        needs=("alert_url",), secrets=["iban"],
    )  # fmt: skip

    assert app.handler("handler").time_limit == timedelta(seconds=5)
