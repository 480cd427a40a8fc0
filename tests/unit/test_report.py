"""Links to reports, what the receiver answers to them, and how rows become CSV."""

import csv
import hashlib
import hmac
import io
from datetime import UTC, datetime, timedelta

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from reliq.automations.report import Report, handlers, link
from reliq.automations.sheet import csv_lines
from reliq.domain.report import Part, Progress, expiry_of, report_link, report_signature
from reliq.errors import ConfigInvalid, StoreError, StoreUnavailable
from reliq.receiver.reports import report_routes
from reliq.settings import Settings

pytestmark = pytest.mark.anyio

SECRET = b"correct horse"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
READY = Progress(
    name="sales", state="ready", done=2, total=2, rows=3, dead=0, reason=None, file=None, now=NOW
)


def test_a_link_is_what_its_page_says():
    made = report_link("https://hooks.test/", SECRET, 7, NOW)

    signed = hmac.new(SECRET, b"report:7:1796040000", hashlib.sha256).hexdigest()
    assert made == f"https://hooks.test/reports/7?expires=1796040000&signature={signed}"


def test_a_link_of_ours_tells_when_it_expires():
    assert (
        expiry_of(SECRET, "7", "1796040000", report_signature(SECRET, 7, 1796040000)) == 1796040000
    )


@pytest.mark.parametrize(
    ("number", "expires", "signature"),
    [
        ("8", "1796040000", report_signature(SECRET, 7, 1796040000)),
        ("7", "1796040001", report_signature(SECRET, 7, 1796040000)),
        ("7", "1796040000", report_signature(b"another", 7, 1796040000)),
        ("7", "1796040000", report_signature(SECRET, 7, 1796040000).upper()),
        ("7", "1796040000", "é\ud800"),
        ("7", "1796040000", ""),
        ("07", "1796040000", report_signature(SECRET, 7, 1796040000)),
        ("7", "01796040000", report_signature(SECRET, 7, 1796040000)),
        ("\u0667", "1796040000", report_signature(SECRET, 7, 1796040000)),
        ("", "", report_signature(SECRET, 7, 1796040000)),
        ("7", "", report_signature(SECRET, 7, 1796040000)),
        ("9" * 19, "1", report_signature(SECRET, int("9" * 19), 1)),
        ("9" * 5_000, "1", "x"),
        ("-7", "1", report_signature(SECRET, -7, 1)),
    ],
)
def test_a_link_that_we_did_not_make_tells_nothing(number, expires, signature):
    assert expiry_of(SECRET, number, expires, signature) is None


def test_settings_that_lack_something_make_no_link():
    bare = Settings(_env_file=None, database_url="postgresql://h/d")

    with pytest.raises(ConfigInvalid) as caught:
        link(bare, 7, NOW)

    assert [each.split()[0] for each in caught.value.problems] == [
        "RELIQ_REPORT_SECRET",
        "RELIQ_PUBLIC_URL",
    ]


@pytest.mark.parametrize("wrong", ["", " ", "a\n"])
def test_a_secret_that_guards_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="report_secret"):
        Settings(_env_file=None, database_url="postgresql://h/d", report_secret=wrong)


@pytest.mark.parametrize("wrong", ["hooks.example.com", "https://h/?a", "ftp://h", "https://h h"])
def test_a_public_address_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="without"):
        Settings(_env_file=None, database_url="postgresql://h/d", public_url=wrong)


def test_rows_are_what_a_csv_reader_gives_back():
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [[None, True, 1, 'a "b", c\nd', moment], ["", False, 1.5, "ü", moment.date()]]

    assert list(csv.reader(io.StringIO(csv_lines(rows), newline=""))) == [
        ["", "true", "1", 'a "b", c\nd', "2026-01-02T00:00:00+00:00"],
        ["", "false", "1.5", "ü", "2026-01-02"],
    ]


@pytest.mark.parametrize("name", ["", "a b", "../x", 'a"', "a/b"])
def test_a_report_whose_name_is_no_file_name_is_refused(name):
    with pytest.raises(ValueError, match="named in letters"):
        handlers({name: Report(columns=(), split=None, rows=None)})


async def chunks(_tx, _params):
    return [{}]


async def rows(_tx, _chunk):
    yield ("a",)


def generator(*_):
    yield ("a",)


def not_async(*_):
    """Give nothing to wait for."""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"columns": ()}, r"the report 'sales': columns=\(\): use one name or more"),
        ({"columns": "ab"}, "columns='ab': use list or tuple"),
        ({"columns": [1]}, r"columns=\[1\]: use a collection of texts"),
        ({"split": not_async}, "the report 'sales': split=.*: use a coroutine function"),
        ({"split": None}, "split=None"),
        ({"rows": chunks}, "the report 'sales': rows=.*: use an async generator"),
        ({"rows": generator}, "rows=.*: use an async generator"),
        ({"rows": None}, "rows=None"),
        ({"on_failure": "x"}, "the report 'sales': on_failure='x': use hold or continue"),
        ({"put": not_async}, "the report 'sales': put=.*: use a coroutine function"),
    ],
)
def test_a_report_that_cannot_work_is_refused_with_its_name(fields, said):
    right = {"columns": ("a",), "split": chunks, "rows": rows}
    handlers({"sales": Report(**right)})

    with pytest.raises(ValueError, match=said):
        handlers({"sales": Report(**right | fields)})

    with pytest.raises(ValueError, match=r"the report 'sales'=.*: use Report"):
        handlers({"sales": right})


PARTS = (Part(0, 1, 0, "n\r\n"), Part(1, 1, 3, "1\r\n2\r\n3\r\n"))


class Store:
    """Has one report, 7, and counts how often somebody asks."""

    def __init__(self, found=READY, parts=PARTS):
        self.found, self.given, self.asked, self.read = found, parts, 0, 0

    async def find(self, report_id):
        self.asked += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found if report_id == 7 else None

    async def parts(self, report_id):
        for part in self.given:
            self.read += 1
            yield part


def address(number=7, lasts=timedelta(hours=1), tail=""):
    made = report_link("http://receiver.test", SECRET, number, NOW + lasts)
    return made.replace("?", f"{tail}?")


async def get(store, url, method="GET"):
    asgi = Starlette(routes=report_routes(store, SECRET))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi)) as http:
        return await http.request(method, url)


def changed(**fields):
    return Progress(**{name: getattr(READY, name) for name in READY.__slots__} | fields)


async def test_a_ready_report_is_its_parts():
    answer = await get(Store(), address())

    assert (answer.status_code, answer.text) == (200, "n\r\n1\r\n2\r\n3\r\n")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="sales-7.csv"'
    assert answer.headers["cache-control"] == "private, no-store"


async def test_a_question_for_the_head_reads_no_part():
    store = Store()

    answer = await get(store, address(), "HEAD")

    assert (answer.status_code, answer.content, store.read) == (200, b"", 0)


@pytest.mark.parametrize("tail", ["", "/progress"])
@pytest.mark.parametrize(
    ("url", "status", "asked"),
    [
        (address(), 200, 1),
        (address(lasts=timedelta(0)), 410, 1),
        (address(lasts=timedelta(seconds=1)), 200, 1),
        (address(8), 404, 1),
        (address()[:-1], 404, 0),
        (address(lasts=timedelta(0))[:-1], 404, 0),
        ("http://receiver.test/reports/7", 404, 0),
        ("http://receiver.test/reports/x?expires=1&signature=1", 404, 0),
    ],
)
async def test_who_has_no_good_link_gets_nothing(url, status, asked, tail):
    store, parts = Store(), httpx.URL(url)

    answer = await get(store, parts.copy_with(path=parts.path + tail))

    assert (answer.status_code, store.asked) == (status, asked)
    if status == 404:
        assert answer.json() == {"error": "not found"}
    if status != 200:
        assert store.read == 0


@pytest.mark.parametrize(
    ("found", "status", "told"),
    [
        (READY, 200, {"state": "ready", "done": 2, "total": 2, "rows": 3}),
        (
            changed(state="running", done=0, total=None, rows=0), 409,
            {"state": "running", "done": 0, "total": None, "rows": 0},
        ),
        (
            changed(state="running", done=1, dead=1, rows=2), 409,
            {"state": "running", "done": 1, "total": 2, "rows": 2, "dead": 1},
        ),
        (
            changed(state="failed", done=1, rows=2, reason="gone"), 409,
            {"state": "failed", "done": 1, "total": 2, "rows": 2, "reason": "gone"},
        ),
    ],
)  # fmt: skip
async def test_progress_is_told_and_what_is_not_ready_is_not_handed_out(found, status, told):
    progress = await get(Store(found), address(tail="/progress"))
    report = await get(Store(found), address())

    assert (progress.status_code, progress.json()) == (200, told)
    assert report.status_code == status
    assert report.headers.get("retry-after") == ("5" if found.state == "running" else None)


async def test_a_report_that_was_put_elsewhere_is_fetched_there():
    answer = await get(Store(changed(file="https://files.test/7")), address())

    assert (answer.status_code, answer.headers["location"]) == (303, "https://files.test/7")


async def test_a_database_that_is_away_is_a_reason_to_come_again():
    answer = await get(Store(StoreUnavailable("away")), address())

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_a_report_that_was_pruned_under_the_reader_is_cut_off():
    with pytest.raises(StoreError, match="lacks 1 rows"):
        await get(Store(changed(rows=4)), address())


async def test_a_client_that_goes_away_ends_the_reading():
    store = Store(parts=(Part(1, n, 1, "1\r\n") for n in range(1, 10**9)))
    gone, url = anyio.Event(), httpx.URL(address())
    scope = {
        "type": "http", "method": "GET", "path": "/reports/7", "headers": [],
        "query_string": url.query, "asgi": {"spec_version": "2.3"},
    }  # fmt: skip

    async def receive():
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_):
        if store.read > 5:
            gone.set()
        await anyio.lowlevel.checkpoint()

    with anyio.fail_after(10):
        await Starlette(routes=report_routes(store, SECRET))(scope, receive, send)

    assert store.read < 20
