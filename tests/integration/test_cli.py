"""The operator's commands against a real Postgres: what they print, write and exit with."""

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import anyio
import asyncpg
import pytest
from cryptography.fernet import Fernet

from reliq.cli import main
from reliq.domain.report import report_signature
from reliq.postgres.migrate import migrations
from reliq.postgres.queries import query
from reliq.sealing import Sealing
from reliq.settings import environment

APP = """
from reliq import app as reliq_app
from reliq.domain.job import NewJob
from reliq.domain.signature import Hmac

def route(delivery):
    order = delivery.json()
    return [NewJob(kind=kind, payload=order, key=order.get("key")) for kind in order["kinds"]]

def app(settings):
    return reliq_app.App(
        sources={"shop": reliq_app.Source(signature=Hmac(header="x-sig"), route=route)},
        handlers={"order": lambda job: None},
    )
"""

DEAD = """
with job as (
  insert into reliq.jobs
    (kind, key, state, ready, attempt, attempts_max, claimed_at, finished_at, dead_reason,
     last_error, payload, event_id)
  values ($1, 'order-7', 'dead', false, 2, 8, reliq.now(), reliq.now() - $2::interval,
          'permanent', $3, '{"order": 7, "api_key": "hunter2"}', $4)
  returning id
)
insert into reliq.attempts
  (job_id, fence, attempt, kind, worker, started_at, ended_at, ended, buried, error, status)
select id, n, n, $1, 'w' || n, reliq.now() - $2::interval - interval '2 s',
       reliq.now() - $2::interval, case n when 1 then 'timed_out' else 'failed' end, n = 2, $3, 400
from job, generate_series(1, 2) as n
returning job_id
"""
EVENT = """
insert into reliq.events (source, dedup_key, headers, body)
values ($1, 'evt_1', '{"content-type": "application/json", "x-api-token": "hunter2"}', $2)
returning id
"""
FINISHED = """
insert into reliq.jobs (kind, key, state, ready, finished_at)
values ('order', 'k', 'succeeded', false, reliq.now() - interval
"""


@pytest.fixture
def sql(dsn):
    """Ask the database for one value."""

    async def ask(statement, *arguments):
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()

    return lambda statement, *arguments: anyio.run(ask, statement, *arguments)


@pytest.fixture
def setting(monkeypatch, tmp_path, dsn):
    """Set variables; the command sees these and an App of one source, and nothing else."""
    for name in environment():
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"app_{dsn.rpartition('/')[2]}"
    (tmp_path / f"{name}.py").write_text(APP)

    def setting(**variables):
        for variable, value in variables.items():
            monkeypatch.setenv(f"RELIQ_{variable}", value)

    setting(DATABASE_URL=dsn, APP=f"{name}:app", SECRETS__SHOP="s3cret")
    return setting


@pytest.fixture
def reliq(setting, capsys):
    """Run one command in this process: exit code, stdout, stderr."""

    def reliq(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        return (ended.value.code or 0, *capsys.readouterr())

    return reliq


def run_process(*arguments):
    return run_python("-m", "reliq", *arguments)


def run_python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def make_dead(sql, kind="order", age="1 minute", error="PermanentError: 400", event=None):
    return sql(DEAD.replace("$2::interval", f"interval '{age}'").replace("$3", "$2").replace("$4", "$3"), kind, error, event)  # fmt: skip


# -- exit codes ---------------------------------------------------------------------------


def test_a_wrong_configuration_exits_with_2_and_names_every_problem(setting):
    setting(PORT="http", APP="nowhere:app", DATABASE_URL="", COLOUR="red")

    ended = run_process("doctor")

    assert ended.returncode == 2
    for problem in ("RELIQ_PORT=http", "RELIQ_DATABASE_URL is missing", "no module nowhere",
                    "RELIQ_COLOUR is no setting"):  # fmt: skip
        assert problem in ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_command_refuses_a_wrong_configuration_with_every_problem(setting):
    setting(PORT="http", LEASE="soon")

    ended = run_process("failed")

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == "reliq: the configuration is wrong"
    assert [line.split("=")[0] for line in ended.stderr.splitlines()[1:]] == [
        "  - RELIQ_PORT",
        "  - RELIQ_LEASE",
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["migrate"],
        ["failed"],
        ["show", "1"],
        ["retry", "1"],
        ["cancel", "1"],
        ["prune"],
        ["doctor"],
    ],
)
def test_a_database_that_is_away_exits_with_75_and_one_line(reliq, setting, command):
    setting(DATABASE_URL="postgresql://reliq:hunter2@127.0.0.1:1/reliq")

    code, out, err = reliq(*command)

    assert code == 75
    said = out if command == ["doctor"] else err
    assert "the database is not available" in said
    assert "hunter2" not in out + err
    assert command == ["doctor"] or len(err.splitlines()) == 1


def test_a_schema_that_is_not_current_is_refused_with_what_to_do(reliq, sql):
    sql("delete from reliq.migrations")

    code, _, err = reliq("failed")

    lacking = ", ".join(each.name for each in migrations())
    assert (code, err) == (1, f"reliq: {lacking} not applied: run `reliq migrate`\n")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["show"], ["show", "x"], ["show", "0"], ["failed", "--since", "soon"]],
)
def test_wrong_usage_exits_with_2(reliq, arguments):
    assert reliq(*arguments)[0] == 2


def test_an_error_that_nobody_expected_keeps_its_traceback(setting):
    broken = "import reliq.wiring.loading as w, reliq.cli; w.loaded = lambda: 1 / 0; reliq.cli.main(['failed'])"

    ended = run_python("-c", broken)

    assert "Traceback" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


# -- the desk -----------------------------------------------------------------------------


def test_failed_lists_the_newest_dead_letters_first(reliq, sql):
    old = make_dead(sql, age="3 hours", error="TemporaryError: password=hunter2\x1b[31m")
    new = make_dead(sql, kind="mail", age="1 minute")

    code, out, _ = reliq("failed")
    _, document, _ = reliq("failed", "--json")

    assert code == 0
    rows = [line.split()[:3] for line in out.splitlines() if not line.startswith(" ")]
    assert rows == [["job", str(new), "mail"], ["job", str(old), "order"]]
    dead = json.loads(document)["dead"]
    assert [row["id"] for row in dead] == [new, old]
    assert dead[1]["error"] == "TemporaryError: password=********"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", dead[0]["died_at"])
    assert "hunter2" not in out
    assert "\x1b" not in out


def test_failed_can_be_narrowed(reliq, sql):
    make_dead(sql, age="3 hours")
    new = make_dead(sql, kind="mail")
    also = make_dead(sql, kind="mail", age="5 hours")

    def listed(*options):
        return [row["id"] for row in json.loads(reliq("failed", "--json", *options)[1])["dead"]]

    assert listed("--since", "2h") == [new]
    assert listed("--kind", "mail") == [new, also]
    assert listed("--kind", "mail", "--limit", 1) == [new]
    assert reliq("failed", "--kind", "sms")[1] == "no dead letters that fit\n"


def test_failed_lists_what_waits_for_a_person_and_all_when_asked(reliq, sql):
    old, ignored = make_dead(sql, age="3 hours"), make_dead(sql)
    made = {dead: int(reliq("retry", dead)[1]) for dead in [make_dead(sql) for _ in range(3)]}
    reliq("ignore", ignored, "--why", "x")

    def listed(*options):
        dead = json.loads(reliq("failed", "--json", *options)[1])["dead"]
        return {row["id"]: row["requeued_as"] for row in dead}

    assert listed("--limit", 3) == {old: None}
    assert "made anew" not in reliq("failed", "--limit", 3)[1]
    assert listed("--all") == {old: None, ignored: None, **made}
    assert f"made anew as job {made[max(made)]}" in reliq("failed", "--all")[1]
    assert reliq("failed", "--all", "--ignored")[0] == 2


def test_dead_letters_of_a_queue_are_listed_made_anew_and_ignored_alone(reliq, sql):
    shop, other, default = (make_dead(sql) for _ in range(3))
    queue = "update reliq.jobs set queue = $1 where id = $2"
    sql(queue, "webhook:shop", shop)
    sql(queue, "webhook:other", other)

    [row] = json.loads(reliq("failed", "--queue", "webhook:shop", "--json")[1])["dead"]
    assert row["id"] == shop
    assert reliq("retry", "--queue", "webhook:shop")[1].endswith("1 new job\n")
    assert reliq("ignore", "--queue", "webhook:other", "--why", "x")[1].endswith(
        "1 dead letter now ignored\n"
    )
    assert [row["id"] for row in json.loads(reliq("failed", "--json")[1])["dead"]] == [default]
    assert sql("select requeued_from from reliq.jobs where state = 'queued'") == shop


def test_show_tells_what_a_job_is_where_it_came_from_and_what_happened(reliq, sql):
    event = sql(EVENT, "shop", b'{"name": "Ada", "password": "hunter2"}')
    job = make_dead(sql, event=event, error="PermanentError: token=hunter2 refused")

    code, out, _ = reliq("show", job)

    assert code == 0
    assert "hunter2" not in out
    for part in (f"job {job}  order  dead (permanent)", "2 of 8", f"event {event}  shop", "evt_1",
                 "content-type: application/json", '"name": "Ada"', "attempt 1 timed out [400]",
                 "attempt 2 started", "w2", "token=********"):  # fmt: skip
        assert part in out


def test_show_tells_what_a_job_came_to_and_masks_it(reliq, sql):
    job = sql(
        "insert into reliq.jobs (kind, key, state, ready, attempt, claimed_at, finished_at, result)"
        " values ('order', 'k', 'succeeded', false, 1, now(), now(), $1) returning id",
        '{"sent": 3, "token": "hunter2"}',
    )

    assert '  result    {"sent": 3, "token": "********"}' in reliq("show", job)[1]
    assert json.loads(reliq("show", job, "--json")[1])["result"]["sent"] == 3


def test_show_prints_one_json_document(reliq, sql):
    event = sql(EVENT, "shop", b"\xff\x00body")
    job = make_dead(sql, event=event)
    sql("update reliq.attempts set error_class = 'httpx.ReadTimeout'"
        " where job_id = $1 and ended = 'failed'", job)  # fmt: skip

    code, out, _ = reliq("show", job, "--json")

    assert code == 0
    document = json.loads(out)
    assert [each["error_class"] for each in document["attempts"]] == [None, "httpx.ReadTimeout"]
    assert document["attempts"][1]["took"]
    assert document["payload"] == {"order": 7, "api_key": "********"}
    assert [each["ended"] for each in document["attempts"]] == ["timed_out", "failed"]
    assert document["event"]["headers"]["x-api-token"] == "********"
    assert document["event"]["body"] == {"bytes": 6, "form": "hex", "shown": "ff 00 62 6f 64 79"}
    assert document["created_at"].endswith("Z")


def test_show_knows_a_job_that_waits_and_a_body_that_was_pruned(reliq, sql):
    event = sql(EVENT, "shop", None)
    job = sql("select job_id from reliq.enqueue('order', event_id => $1)", event)

    code, out, _ = reliq("show", job)

    assert code == 0
    assert re.search(r"\bdue\b", out)
    assert "body      pruned" in out


def test_show_tells_how_far_the_children_of_a_job_are(reliq, sql):
    parent = sql("select job_id from reliq.enqueue('split')")
    sql(
        "insert into reliq.parents (job_id, children, on_failure, then_kind, then_payload,"
        " then_run_in, then_queue, then_priority)"
        " values ($1, 2, 'hold', 'bind', '{}', '0', 'default', 5)", parent,
    )  # fmt: skip
    child = sql(
        "insert into reliq.jobs (kind, key, parent_id) values ('page', 'k', $1) returning id",
        parent,
    )

    assert "2 have ended (1 queued); bind waits for all to succeed" in reliq("show", parent)[1]
    assert json.loads(reliq("show", parent, "--json")[1])["family"]["queued"] == 1
    assert re.search(rf"parent +job {parent}\b", reliq("show", child)[1])


def test_a_number_that_nobody_has_is_refused_in_one_line(reliq):
    for command in ("show", "retry"):
        assert reliq(command, 12345)[::2] == (1, "reliq: there is no job 12345\n")


def test_retry_makes_one_new_job_and_names_it_again_when_asked_again(reliq, sql):
    dead = make_dead(sql)

    code, out, err = reliq("retry", dead, "--by", "ada", "--reason", "the CRM is back")
    again, out_again, err_again = reliq("retry", dead)

    assert (code, again) == (0, 0)
    new = int(out)
    assert out_again == out
    assert "already" not in err
    assert "already" in err_again
    row = sql(
        "select (requeued_from, requeued_by, requeue_reason, state)::text "
        "from reliq.jobs where id = $1", new,
    )  # fmt: skip
    assert row == f'({dead},ada,"the CRM is back",queued)'
    assert sql("select state from reliq.jobs where id = $1", dead) == "dead"
    assert f"dead letter {dead} by ada: the CRM is back" in reliq("show", new)[1]


def test_retry_names_whoever_is_logged_in(reliq, sql, monkeypatch):
    monkeypatch.setenv("LOGNAME", "grace")

    _, out, _ = reliq("retry", make_dead(sql))

    assert sql("select requeued_by from reliq.jobs where id = $1", int(out)) == "grace"


def test_retry_refuses_a_job_that_is_not_dead(reliq, sql):
    job = sql("select job_id from reliq.enqueue('order')")

    code, out, err = reliq("retry", job)

    assert (code, out) == (1, "")
    assert err == f"reliq: job {job} is queued: only a dead job can be made anew\n"


# -- cancel -------------------------------------------------------------------------------


def test_cancel_says_of_each_job_what_becomes_of_it_and_show_says_who_asked(reliq, sql):
    waiting, running = (sql("select job_id from reliq.enqueue('order')") for _ in range(2))
    sql("update reliq.jobs set state = 'running', ready = false where id = $1", running)

    code, out, err = reliq("cancel", running, waiting, "--by", "ada", "--why", "sent twice")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"job {waiting} is cancelled",
        f"job {running} runs: its worker is told to stop it, and it will not run again",
    ]
    assert re.search(r"cancel +asked for 2.*Z by ada: sent twice\n", reliq("show", waiting)[1])
    assert json.loads(reliq("show", running, "--json")[1])["cancel_requested_by"] == "ada"


def test_cancel_refuses_what_has_ended_and_does_the_rest(reliq, sql):
    waiting, dead = sql("select job_id from reliq.enqueue('order')"), make_dead(sql)

    code, out, err = reliq("cancel", waiting, dead, 12345)

    assert (code, out) == (1, f"job {waiting} is cancelled\n")
    assert err == f"reliq: job {dead} is dead: too late; there is no job 12345\n"
    assert sql("select state from reliq.jobs where id = $1", dead) == "dead"


def queued(sql, kind="order", queue="default", group="null"):
    return sql(
        f"select job_id from reliq.enqueue('{kind}', queue => '{queue}', group_key => {group})"
    )


def states(sql):
    found = sql("select json_object_agg(id, state) from reliq.jobs")
    return {int(job): state for job, state in json.loads(found).items()}


def test_cancel_takes_all_of_a_filter_that_wait_or_run(reliq, sql):
    mail = [queued(sql, "mail"), queued(sql, "mail", "crm"), queued(sql, "mail", group="'a'"),
            queued(sql, "mail", group="'a'")]  # fmt: skip
    running = queued(sql, "mail")
    sql("update reliq.jobs set state = 'running', ready = false where id = $1", running)
    others = [queued(sql), make_dead(sql, kind="mail")]
    before = states(sql)
    asked = ("cancel", "--kind", "mail")

    code, dry, _ = reliq(*asked, "--dry-run")
    assert (code, states(sql)) == (0, before)
    assert dry.splitlines() == [
        "4 jobs would be cancelled", "1 job running: would be told to stop, and not run again",
    ]  # fmt: skip

    code, out, _ = reliq(*asked, "--by", "ada", "--why", "sent twice")
    assert (code, out.splitlines()) == (
        0, ["4 jobs cancelled", "1 job running: told to stop, and not run again"],
    )  # fmt: skip
    assert {job: state for job, state in states(sql).items() if job in others} == {
        job: before[job] for job in others
    }
    assert {states(sql)[job] for job in mail} == {"cancelled"}
    assert sql("select cancel_requested_by from reliq.jobs where id = $1", running) == "ada"
    assert reliq(*asked)[1].splitlines()[0] == "0 jobs cancelled"


@pytest.mark.parametrize(
    ("asked", "places"),
    [(("--queue", "crm"), [1]), (("--group", "a"), [2, 3]), (("--kind", "mail", "--since", "1h"), [0, 1, 2]),
     (("--kind", "mail", "--group", "a"), [2])],
)  # fmt: skip
def test_cancel_can_be_narrowed(reliq, sql, asked, places):
    jobs = [queued(sql, "mail"), queued(sql, "mail", "crm"), queued(sql, "mail", group="'a'"),
            queued(sql, group="'a'"), queued(sql, "mail")]  # fmt: skip
    sql("update reliq.jobs set created_at = created_at - interval '2 hours' where id = $1", jobs[4])

    document = json.loads(reliq("cancel", *asked, "--json")[1])

    assert document == {"dry_run": False, "cancelled": len(places), "running": 0, "late": 0}
    assert [job for job in jobs if states(sql)[job] == "cancelled"] == [jobs[n] for n in places]


def test_cancel_of_many_goes_on_from_batch_to_batch(reliq, sql):
    sql("insert into reliq.jobs (kind, key) select 'mail', n from generate_series(1, 2345) as n")
    sql("update reliq.jobs set state = 'succeeded', ready = false where key::int <= 1100")

    assert reliq("cancel", "--kind", "mail")[1] == "1245 jobs cancelled\n"
    assert sql("select count(*) from reliq.jobs where state = 'queued'") == 0


@pytest.mark.parametrize(
    "arguments", [[], ["1", "--kind", "mail"], ["--since", "1h"], ["1", "--dry-run"]]
)
def test_what_to_cancel_is_said_in_one_way(reliq, arguments):
    assert reliq("cancel", *arguments)[0] == 2


# -- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (["--running", "2"], (2, None, 1, None, timedelta(minutes=1))),
        (["--rate", "10/s"], (None, 10.0, 10, None, timedelta(minutes=1))),
        (["--rate", "30/m", "--burst", "7"], (None, 0.5, 7, None, timedelta(minutes=1))),
        (["--opens-after", "3", "--open-for", "5m"], (None, None, 1, 3, timedelta(minutes=5))),
    ],
)
def test_a_queue_is_limited_as_the_options_say(reliq, sql, options, limit):
    code, out, err = reliq("limit", "crm", *options)

    assert (code, out, err) == (0, "crm is limited, within a second\n", "")
    row = sql("select row(max_running, rate, burst, opens_after, open_for) from reliq.limits")
    assert tuple(row) == limit
    assert reliq("limit", "crm", "--off")[:2] == (0, "crm has no limits any more\n")
    assert sql("select count(*) from reliq.limits") == 0


def test_doctor_says_what_is_paused(reliq, sql):
    sql("select reliq.pause('queue', 'crm'), reliq.pause('kind', 'mail.send')")

    assert re.search(r"paused +kind mail.send, queue crm: see `reliq limits`", reliq("doctor")[1])
    for queue in ("crm", "crm", "default"):
        queued(sql, queue=queue)
    sql("update reliq.jobs set run_at = reliq.now() + interval '1 hour' where id = $1", queued(sql, queue="crm"))  # fmt: skip

    said = "kind mail.send, queue crm; 2 due jobs of paused queues: see `reliq limits`"
    assert examined(reliq)[2]["paused"] == {"check": "paused", "well": True, "text": said}


# -- drain ----------------------------------------------------------------------------------


def test_drain_pauses_what_is_named_and_waits_for_what_runs(reliq, sql):
    queued(sql, queue="crm")

    code, out, err = reliq("drain", "crm", "mail", "--by", "ada")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "paused: crm, mail", "to go on: reliq resume crm mail", "drained: nothing runs",
    ]  # fmt: skip
    pauses = "select array_agg(concat_ws(' ', scope, name, \"by\", reason) order by name) from reliq.pauses"
    assert sql(pauses) == ["queue crm ada drain", "queue mail ada drain"]
    assert reliq("resume", "crm", "mail")[0] == 0
    assert sql(pauses) is None


def test_drain_of_all_leaves_standing_pauses_and_gives_up_when_its_time_is_over(reliq, sql):
    run = "update reliq.jobs set state = 'running', ready = false, reap_at = reliq.now() where id = $1"
    running = [queued(sql, "mail", "mails"), queued(sql, "mail", "mails"), queued(sql)]
    for job in running:
        sql(run, job)
    queued(sql, queue="later")
    sql("select reliq.limit_queue('crm', 4)")
    sql("select reliq.pause('queue', 'later', 'bob', 'they move house')")

    code, out, err = reliq("drain", "--within", "600ms", "--why", "upgrade")

    still = f"order 1 (job {running[2]} of default), mail 2 (job {running[0]} and others of mails)"
    assert (code, err) == (124, f"reliq: time is over, and still running: {still}\n")
    assert out.splitlines() == [
        "paused: crm, default, mails", f"running: {still}",
        "to go on: reliq resume crm default mails",
    ]  # fmt: skip
    assert sql("select reason from reliq.pauses where name = 'later'") == "they move house"
    assert sql("select count(*) from reliq.pauses where reason = 'upgrade'") == 3


def test_drain_waits_for_jobs_that_no_other_knows_of(setting, reliq, sql):
    job = queued(sql)
    sql("update reliq.jobs set state = 'running', ready = false, reap_at = reliq.now() where id = $1", job)  # fmt: skip
    drain = subprocess.Popen(
        [sys.executable, "-m", "reliq", "drain"], stdout=subprocess.PIPE, text=True
    )
    with drain:
        assert drain.stdout.readline() == "paused: default\n"
        assert drain.stdout.readline() == f"running: order 1 (job {job} of default)\n"
        made = queued(sql, queue="new")
        sql("update reliq.jobs set state = 'succeeded' where id = $1", job)
        assert drain.stdout.readline() == "paused: new\n"
        assert drain.wait(timeout=30) == 0
    assert states(sql)[made] == "queued"


# -- keys -----------------------------------------------------------------------------------


OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
SECRETIVE = "from reliq import App\napp = App(secrets={'iban'})\n"


@pytest.fixture
def sealed(setting, sql, tmp_path):
    """Store a payload that is sealed with the old key; set both."""
    (tmp_path / "sealed_app.py").write_text(SECRETIVE)
    setting(APP="sealed_app:app", ENCRYPTION_KEYS=f"2026b:{NEW},2026a:{OLD}")
    payload = Sealing(f"2026a:{OLD}", {"iban"}).seal('{"iban": "DE89"}')
    return sql("select job_id from reliq.enqueue('order', $1::jsonb)", payload)


def test_rekey_seals_with_the_newest_key_and_says_what_is_left(reliq, sql, sealed):
    sql("""select job_id from reliq.enqueue('order', '{"iban": "in clear"}')""")

    code, out, err = reliq("rekey", "--check")
    assert (code, out) == (1, "")
    assert err == "reliq: 2 payloads to be sealed anew: run `reliq rekey`\n"

    code, out, err = reliq("rekey")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2 payloads sealed anew, with key 2026b",
        "all that is sealed names key 2026b, and no secret field is in clear",
    ]
    assert sql("select count(*) from reliq.jobs where payload::text like '%2026b:%'") == 2
    assert reliq("rekey", "--check")[0] == 0
    assert "DE89" not in reliq("show", sealed)[1]


def test_rekey_says_which_key_is_missing_and_changes_nothing_of_it(reliq, setting, sealed):
    setting(ENCRYPTION_KEYS=f"2026b:{NEW}")

    code, out, err = reliq("rekey")

    assert (code, out) == (1, "0 payloads sealed anew, with key 2026b\n")
    assert err == (
        "reliq: 1 payload: iban is sealed with key '2026a', which is not among the keys here\n"
    )


def test_rekey_needs_keys_that_can_be_read(reliq, setting):
    assert reliq("rekey")[0] == 2
    setting(ENCRYPTION_KEYS="2026b:hunter2")

    code, _, err = reliq("rekey")

    assert code == 2
    assert "RELIQ_ENCRYPTION_KEYS=… is wrong: the key 2026b is no Fernet key" in err
    assert "hunter2" not in err


def test_keys_without_their_package_are_told_of(reliq, setting, sealed, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)

    code, out, _ = reliq("doctor")

    assert code == 2
    assert "install reliq with its extra `encryption`" in out


# -- many dead letters, and those that stay -------------------------------------------------


def test_retry_makes_all_of_a_filter_anew_once(reliq, sql):
    mail = [make_dead(sql, kind="mail", error=f"TemporaryError: no answer {n}") for n in (17, 23)]
    make_dead(sql, kind="mail", age="3 hours")
    make_dead(sql, kind="mail", error="another")
    make_dead(sql, error="TemporaryError: no answer 5")
    asked = ("--kind", "mail", "--since", "2h", "--error", "NO answer")

    code, dry, _ = reliq("retry", *asked, "--dry-run")
    assert (code, sql("select count(*) from reliq.jobs where state = 'queued'")) == (0, 0)
    assert dry.splitlines()[-1] == "2 new jobs would be made"

    document = json.loads(reliq("retry", *asked, "--by", "ada", "--why", "it is back", "--json")[1])
    assert [(row["dead"], row["fresh"]) for row in document["jobs"]] == [
        (dead, True) for dead in mail
    ]
    rows = "select array_agg((requeued_from, requeued_by, requeue_reason, kind)::text order by id) from reliq.jobs where state = 'queued'"
    assert sql(rows) == [f'({dead},ada,"it is back",mail)' for dead in mail]
    assert reliq("retry", *asked)[1] == "0 new jobs\n"
    assert reliq("failed", "--error", "no answer 17")[1] == "no dead letters that fit\n"
    assert f"job {mail[0]} mail died" in reliq("failed", "--error", "no answer 17", "--all")[1]


def test_retry_of_many_spreads_them(reliq, sql):
    for _ in range(4):
        make_dead(sql)

    code, out, _ = reliq("retry", "--kind", "order", "--rate", "30/m")

    assert (code, out.splitlines()[-1]) == (0, "4 new jobs, due over the next 8s")
    spread = """select array_agg(extract(epoch from run_at - first)::int order by id) from (
        select id, run_at, min(run_at) over () as first from reliq.jobs where state = 'queued') as j"""
    assert sql(spread) == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "arguments",
    [["retry"], ["retry", "1", "--kind", "mail"], ["retry", "--kind", "mail", "--rate", "fast"],
     ["ignore", "--why", "x"], ["ignore", "1"], ["ignore", "1", "--since", "1d", "--why", "x"]],
)  # fmt: skip
def test_what_to_make_anew_or_ignore_is_said_in_one_way(reliq, arguments):
    assert reliq(*arguments)[0] == 2


def test_a_dead_letter_that_was_ignored_stays_and_is_no_more_listed(reliq, sql):
    dead, other = make_dead(sql), make_dead(sql)

    code, out, _ = reliq("ignore", dead, "--by", "ada", "--why", "a test of ours")
    again = reliq("ignore", dead, "--why", "me too")[1]

    assert (code, out) == (0, f"dead letter {dead} is ignored\n")
    assert again == f"dead letter {dead} is ignored already, by ada: a test of ours\n"
    assert [row["id"] for row in json.loads(reliq("failed", "--json")[1])["dead"]] == [other]
    assert re.search(
        rf"job {dead} .*, ignored by ada 20.*Z: a test of ours", reliq("failed", "--ignored")[1]
    )
    assert "by ada: a test of ours" in reliq("show", dead)[1]
    assert sql("select sum(open) from reliq.dead_letters") == 1

    code, _, err = reliq("retry", dead)
    assert (code, err) == (1, f"reliq: job {dead} was ignored by ada: a test of ours; --ignored makes it anew all the same\n")  # fmt: skip
    reliq("retry", "--kind", "order")
    late = (query("requeue_jobs").text, [dead], "bob", "", timedelta(0), timedelta(0))
    assert sql(*late, False) is None  # noqa: FBT003 - it was ignored since he looked
    assert sql("select count(*) from reliq.jobs where requeued_from = $1", dead) == 0
    assert reliq("retry", dead, "--ignored")[0] == 0
    assert sql("select state from reliq.jobs where id = $1", dead) == "dead"


def test_all_of_a_filter_can_be_ignored(reliq, sql):
    for n in (17, 23):
        make_dead(sql, error=f"no account {n}")
    make_dead(sql)

    assert reliq("ignore", "--error", "account", "--why", "x", "--dry-run")[1].endswith(
        "2 dead letters would be ignored\n"
    )
    assert reliq("ignore", "--error", "account", "--why", "x")[1].endswith(
        "2 dead letters now ignored\n"
    )
    assert len(json.loads(reliq("failed", "--json")[1])["dead"]) == 1


def test_only_a_dead_letter_that_waits_can_be_ignored(reliq, sql):
    queued = sql("select job_id from reliq.enqueue('order')")
    dead = make_dead(sql)
    new = int(reliq("retry", dead)[1])

    assert reliq("ignore", queued, "--why", "x")[::2] == (1, f"reliq: there is no dead letter {queued}\n")  # fmt: skip
    assert reliq("ignore", dead, "--why", "x")[::2] == (1, f"reliq: job {dead} was made anew as job {new}\n")  # fmt: skip


def test_a_delivery_that_could_not_be_read_can_be_ignored(reliq, sql):
    event = sql(EVENT, "shop", b'{"kinds": ["order"]}')
    assert reliq("ignore", "--event", event, "--why", "x")[::2] == (1, f"reliq: event {event} was read: there is nothing to ignore\n")  # fmt: skip
    assert reliq("ignore", "--event", 99, "--why", "x")[::2] == (1, "reliq: there is no event 99\n")
    sql("update reliq.events set parse_error = 'KeyError: 1'")

    assert reliq("ignore", "--event", event, "--by", "ada", "--why", "a scanner")[1] == f"event {event} is ignored\n"  # fmt: skip

    assert reliq("failed")[1] == "no dead letters\n"
    assert "ignored by ada" in reliq("failed", "--ignored")[1]
    code, _, err = reliq("replay", event)
    assert (code, err) == (1, f"reliq: event {event} was ignored by ada: a scanner; --force reads it all the same\n")  # fmt: skip
    assert reliq("replay", event, "--force")[0] == 0


def test_one_and_many_are_made_anew_alike():
    columns = [
        re.search(r"insert into reliq\.jobs(?: as j)?\s*\((.*?)\)", query(name).text, re.DOTALL)[1]
        for name in ("requeue_job", "requeue_jobs")
    ]
    one, many = ([each.strip() for each in found.split(",")] for found in columns)

    assert many == [*one, "run_at"]


def test_show_masks_what_the_app_calls_secret_and_everything_without_an_app(reliq, sql, setting):
    job = make_dead(sql, event=sql(EVENT, "shop", b'{"order": "hunter3"}'))
    Path("secretive.py").write_text("from reliq import App\napp = App(secrets={'order'})")
    setting(APP="secretive:app")

    document = json.loads(reliq("show", job, "--json")[1])
    assert document["payload"]["order"] == "********"
    assert "hunter3" not in str(document)

    setting(APP="nowhere:app")
    code, out, err = reliq("show", job, "--json")
    assert code == 0
    assert set(json.loads(out)["payload"].values()) == {"********"}
    assert "hunter3" not in out
    assert "there is no module nowhere; so every value of the payload is masked" in err


# -- replay -------------------------------------------------------------------------------


def test_replay_makes_the_jobs_of_an_event_once_and_anew_when_forced(reliq, sql):
    event = sql(EVENT, "shop", b'{"kinds": ["order", "order"]}')

    first = json.loads(reliq("replay", event, "--json")[1])["jobs"]
    second = json.loads(reliq("replay", event, "--json")[1])["jobs"]
    forced = json.loads(reliq("replay", event, "--force", "--json")[1])["jobs"]

    assert [row["duplicate"] for row in first + second + forced] == [False] * 2 + [True] * 2 + [
        False
    ] * 2
    assert [row["job_id"] for row in second] == [row["job_id"] for row in first]
    assert sql("select count(*) from reliq.jobs where event_id = $1", event) == 4
    assert "0 new jobs, 2 of before" in reliq("replay", event)[1]


def test_replay_says_so_when_an_event_makes_no_jobs(reliq, sql):
    event = sql(EVENT, "shop", b'{"kinds": []}')

    code, out, _ = reliq("replay", event)

    assert code == 0
    assert "makes no jobs" in out


@pytest.mark.parametrize(
    ("source", "body", "said"),
    [
        ("shop", b"not json, token=hunter2", "cannot be read: JSONDecodeError"),
        ("shop", b'{"kinds": [""]}', "the kind of a job is 1 to 200 bytes"),
        ("shop", None, "was pruned"),
        ("bazaar", b"{}", "came from the source 'bazaar', which this App does not have"),
    ],
)
def test_replay_says_why_it_cannot_and_writes_nothing(reliq, sql, source, body, said):
    event = sql(EVENT, source, body)

    code, out, err = reliq("replay", event)

    assert (code, out) == (1, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert sql("select count(*) from reliq.jobs") == 0


# -- keeping house ------------------------------------------------------------------------


def test_prune_deletes_what_is_old_and_keeps_the_rest(reliq, sql):
    sql(f"{FINISHED} '40 days')")
    kept = [sql(f"{FINISHED} '20 days') returning id"), make_dead(sql, age="40 days")]
    aged = "update reliq.events set received_at = reliq.now() - interval '{}' where id = $1"
    sql(aged.format("40 days"), sql(EVENT, "shop", b"old"))
    sql(aged.format("20 days"), newer := sql(EVENT, "shop", b"newer"))
    sql(aged.format("40 days"), unread := sql(EVENT, "shop", b"unread"))
    sql("update reliq.events set parse_error = 'ValueError' where id = $1", unread)

    for days in (390, 410):
        sql(
            "insert into reliq.effect_keys (key, job_id, fence, done_at)"
            f" values ('{days}', 1, 1, reliq.now() - interval '{days} days')"
        )

    code, document, _ = reliq("prune", "--json")

    assert (code, json.loads(document)) == (
        0,
        {"jobs": 1, "bodies": 1, "keys": 0, "effects": 1, "groups": 0, "families": 0, "reports": 0},
    )
    assert sql("select array_agg(id order by id) from reliq.jobs") == kept
    assert sql("select array_agg(id) from reliq.events where body is not null") == [newer, unread]


def test_prune_takes_ages_for_each_sort(reliq, sql):
    sql(f"{FINISHED} '20 days')")
    make_dead(sql, age="40 days")
    sql(
        "update reliq.events set received_at = '2000-01-01' where id = $1", sql(EVENT, "shop", b"x")
    )

    assert reliq("prune", "--jobs", "10d", "--bodies", "36500d")[1] == (
        "deleted 1 finished job, 0 expired keys, 0 old effects and 0 old reports, emptied the bodies of 0 events\n"
    )
    assert reliq("prune", "--dead", "10d", "--bodies", "36500d")[1].startswith(
        "deleted 1 finished job, 0 expired"
    )
    assert "the bodies of 1 event" in reliq("prune", "--bodies", "10d")[1]


AGES = ("--jobs", "--cancelled", "--dead", "--ignored", "--bodies")


@pytest.mark.parametrize(
    "command",
    [*(("prune", age) for age in AGES), ("limit", "crm", "--opens-after", "3", "--open-for")],
)
@pytest.mark.parametrize("none", ["0s", "0.0000001s"])
def test_no_time_at_all_is_refused_where_some_is_needed(reliq, command, none):
    code, _, err = reliq(*command, none)

    assert code == 2
    assert "is no time at all" in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize("option", AGES)
@pytest.mark.parametrize("number", ["7", "0.5", "0"])
def test_prune_refuses_an_age_without_a_unit_and_deletes_nothing(reliq, sql, option, number):
    kept = sql(f"{FINISHED} '20 days') returning id")

    code, _, err = reliq("prune", option, number)

    assert code == 2
    said = " ".join(err.replace("│", " ").split())
    assert f"'{number}' has no unit: write {number}d for days" in said
    assert sql("select array_agg(id) from reliq.jobs") == [kept]


def test_prune_heeds_what_the_app_says_of_a_kind(reliq, sql, setting):
    kept = sql(f"{FINISHED} '40 days') returning id")
    Path("keeping.py").write_text(
        "from datetime import timedelta as t\nfrom reliq import App, Keep\n"
        "app = App(keep={'order': Keep(succeeded=t(days=50))})"
    )
    setting(APP="keeping:app")

    assert json.loads(reliq("prune", "--jobs", "1d", "--json")[1])["jobs"] == 0
    assert sql("select array_agg(id) from reliq.jobs") == [kept]


def test_a_delivery_that_could_not_be_read_is_listed_until_it_is_replayed(reliq, sql):
    event = sql(EVENT, "shop", b'{"kinds": ["order"], "id": "o1"}')
    sql("update reliq.events set parse_error = 'KeyError: 1', dedup_key = null")
    assert f"event {event} from shop" in reliq("failed")[1]
    assert json.loads(reliq("failed", "--json")[1])["unreadable"][0]["id"] == event

    assert reliq("replay", event)[0] == 0

    assert reliq("failed")[1] == "no dead letters\n"


def test_five_migrations_at_once_leave_one_schema(dsn, sql, setting):
    sql("drop schema reliq cascade")

    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "reliq", "migrate"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    ended = [process.communicate(timeout=60) for process in processes]

    assert [process.returncode for process in processes] == [0] * 5, ended
    applied = [word for out, _ in ended for word in re.findall(r"\b\d{4}_\w+", out)]
    assert sorted(applied) == [each.name for each in migrations()]
    assert sql("select count(*) from reliq.migrations") == len(migrations())


def test_a_database_with_an_edited_migration_is_refused(reliq, sql):
    sql("update reliq.migrations set checksum = 'other' where number = 1 returning 1")

    code, _, err = reliq("migrate")

    assert code == 1
    assert err == "reliq: migration 0001_first_tables was applied with another text: restore it\n"


# -- doctor -------------------------------------------------------------------------------


def examined(reliq):
    code, out, _ = reliq("doctor", "--json")
    document = json.loads(out)
    return code, document, {each["check"]: each for each in document["findings"]}


def test_doctor_says_which_endpoints_are_disabled_and_why(reliq, sql):
    sql("insert into reliq.endpoints (name, url, sealed) values ('well', 'u', '{}')")
    sql("insert into reliq.endpoints (name, url, sealed, disabled_at, disabled_why)"
        " values ('shop', 'u', '{}', now(), 'it answered 410')")  # fmt: skip

    _, _, findings = examined(reliq)

    said = "disabled: shop (it answered 410); see `reliq endpoint list`"
    assert findings["endpoints"] == {"check": "endpoints", "well": True, "text": said}


def test_doctor_finds_all_well(reliq, dsn):
    code, document, findings = examined(reliq)

    assert (code, document["verdict"], document["problems"]) == (0, "well", [])
    assert all(each["well"] for each in findings.values())
    assert abs(document["clocks"]["ahead"]) <= 1
    settings = {each["name"]: each for each in document["settings"]}
    assert settings["RELIQ_SECRETS__SHOP"]["value"] == "********"
    assert settings["RELIQ_PORT"] == {"name": "RELIQ_PORT", "value": "8000", "origin": "default"}


def test_doctor_prints_the_same_for_people(reliq):
    code, out, _ = reliq("doctor")

    assert code == 0
    assert "s3cret" not in out
    assert re.search(r"RELIQ_SECRETS__SHOP +environment +\*{8}", out)
    assert out.rstrip().endswith("well")


def test_doctor_names_kinds_that_this_app_cannot_work(reliq, sql):
    sql("select count(*) from generate_series(1, 3) n, reliq.enqueue('fax', key => n::text)")

    code, _, findings = examined(reliq)

    assert code == 1
    assert "fax (3 jobs)" in findings["kinds"]["text"]


def test_doctor_counts_dead_letters_until_a_person_has_seen_to_them(reliq, sql):
    dead = make_dead(sql)
    make_dead(sql, age="2 days")

    before, _, found = examined(reliq)
    reliq("retry", dead)
    after, document, _ = examined(reliq)

    assert (before, after) == (1, 0)
    assert found["dead"]["text"].startswith("1 job died in the last day, 1 not made anew")
    assert document["figures"]["dead_last_day"] == 1


def test_doctor_reports_alerts_that_died_whenever_that_was(reliq, sql):
    make_dead(sql, kind="alert", age="5 days")

    code, _, findings = examined(reliq)

    assert code == 1
    assert findings["alerts"]["text"].startswith("1 alert never arrived")


def test_doctor_reports_alerts_of_either_channel(reliq, sql):
    make_dead(sql, kind="alert.webhook", age="5 days")

    assert examined(reliq)[2]["alerts"]["text"].startswith("1 alert never arrived")


def test_doctor_names_the_alarms_that_were_told_and_are_on(reliq, sql):
    for name, told, ended in (("on", True, False), ("over", True, True), ("pending", False, False)):
        sql(
            "insert into reliq.alarms values ($1, '', $1 || ' it is', reliq.now(),"
            " case when $2 then reliq.now() end, case when $3 then reliq.now() end, false)"
            " returning 1", name, told, ended,
        )  # fmt: skip

    code, document, findings = examined(reliq)

    assert code == 1
    assert findings["alarms"]["text"] == "on it is"
    assert document["figures"]["alarms"] == ["on it is"]


def test_doctor_reports_jobs_that_nobody_works_off(reliq, sql, clock):
    sql("select job_id from reliq.enqueue('order')")
    anyio.run(clock.forward, 600)

    code, document, findings = examined(reliq)

    assert code == 1
    assert document["figures"]["due"] == 1
    assert 600 <= document["figures"]["oldest_due"] < 700
    assert "0 workers listening" in findings["due"]["text"]


def test_doctor_asks_for_a_migration(reliq, sql):
    sql("delete from reliq.migrations")

    code, document, findings = examined(reliq)

    assert (code, document["figures"]) == (1, None)
    assert "run `reliq migrate`" in findings["schema"]["text"]


def test_doctor_reports_a_database_that_loses_commits_or_scans_in_sequence(reliq, sql, setting):
    sql("do $$begin execute format('alter database %I set synchronous_commit = off', "
        "current_database()); end$$")  # fmt: skip
    setting(PLANNER="role")

    code, _, findings = examined(reliq)

    assert code == 1
    assert not findings["synchronous_commit"]["well"]
    assert not findings["enable_seqscan"]["well"]


def test_doctor_reports_every_problem_of_a_wrong_configuration(reliq, setting):
    setting(SECRETS__SHOP="", SECRETS__SHOPP="x", GRACE="never", DATABASE_URL="")

    code, document, _ = examined(reliq)

    assert (code, document["verdict"]) == (2, "misconfigured")
    assert [problem.split()[0].split("=")[0] for problem in document["problems"]] == [
        "RELIQ_DATABASE_URL",
        "RELIQ_GRACE",
        "RELIQ_SECRETS__SHOP",
    ]
    assert "you set RELIQ_SECRETS__SHOPP" in document["problems"][2]
    settings = {each["name"]: each["value"] for each in document["settings"]}
    assert settings["RELIQ_GRACE"] == "see below"


# -- the App ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "app", "said"),
    [
        ("", "{}", "write it as module:name"),
        ("", "{}:app", "{} has no app"),
        ("appp = 1", "{}:app", "did you mean appp?"),
        ("app = 1", "{}:app", "app is a int, not an App"),
        ("import nothing_like_it", "{}:app", "importing {} raised ModuleNotFoundError"),
        ("1 / 0", "{}:app", "importing {} raised ZeroDivisionError: division by zero ("),
        ("def app(s): raise OSError('token=hunter2')", "{}:app", "raised OSError: token=********"),
        ("from reliq.app import App\napp = App(needs=['alert_chat_id'])", "{}:app",
         "RELIQ_ALERT_CHAT_ID is missing"),
        ("from reliq.app import App\napp = App(needs=['colour'])", "{}:app",
         "needs RELIQ_COLOUR, which is no setting"),
    ],
)  # fmt: skip
def test_an_app_that_does_not_load_is_a_problem_in_words(reliq, setting, code, app, said):
    name = f"bad_{abs(hash((code, app)))}"
    Path(f"{name}.py").write_text(code)
    setting(APP=app.format(name))

    ended, document, _ = examined(reliq)

    assert ended == 2
    assert said.format(name) in " ".join(document["problems"])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("app = App(handlers={'order': Handler(print, time_limit=5)})", "Handler(print): time_limit=5"),
        ("app = App(sources={'a b': Source(signature=Hmac(header='x'), route=print)})",
         "the name of a source='a b'"),
        ("app = App(schedules=[Schedule(kind='x', when='daily')])", "schedule 'x': when='daily'"),
        ("app = lambda s: Outgoing(http=print, url=s.alert_url, what='the ops URL')",
         "Outgoing(what='the ops URL') has no url"),
        ("app = App(handlers=alert.handlers({}))", "without a channel alerts count as sent"),
        ("app = lambda s: App(handlers={'mail.send': mail.handler(s)})", "RELIQ_MAIL_URL is missing"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["worker", "serve", "doctor"])
def test_an_app_that_cannot_work_starts_nothing_and_is_named(reliq, setting, command, code, said):
    name = f"unfit_{abs(hash(code))}"
    imports = (
        "from reliq import *\nfrom reliq.automations import alert, mail\n"
        "from reliq.automations.outgoing import Outgoing\n"
    )
    Path(f"{name}.py").write_text(imports + code)
    setting(APP=f"{name}:app")

    ended, *told = reliq(command)

    assert ended == 2
    assert said in " ".join("".join(told).split())


def test_the_line_that_is_named_is_the_apps_and_not_one_of_python_or_a_library(reliq, setting):
    Path("unlucky.py").write_text(
        "import os, httpx\n\ndef app(s):\n    httpx.URL(7)\n\ndef lost(s):\n    os.environ['LOST']\n"
    )
    for name, line in (("app", 4), ("lost", 7)):
        setting(APP=f"unlucky:{name}")

        _, document, _ = examined(reliq)

        assert f"unlucky.py, line {line})" in document["problems"][-1]


def test_an_app_with_a_fault_of_grammar_is_named_by_its_own_line_alone(reliq, setting):
    Path("garbled.py").write_text("app =\n")
    setting(APP="garbled:app")

    _, document, _ = examined(reliq)

    assert document["problems"][-1].endswith("(garbled.py, line 1)")


@pytest.mark.parametrize(
    ("name", "value"), [("MAIL_URL", "mx.test"), ("ALERT_CHAT_ID", "xyz"), ("MAIL_URL", None)]
)
def test_what_is_wrong_is_not_missing_as_well(reliq, setting, name, value):
    Path("needy.py").write_text(
        "from reliq import App\nfrom reliq.automations import mail\n"
        "def app(s):\n"
        "    return App(handlers={'mail.send': mail.handler(s)}, needs=['alert_chat_id'])\n"
    )
    others = {"MAIL_URL": "smtp+plain://localhost:25", "ALERT_CHAT_ID": "1"}
    setting(**{**others, name: value or ""}, MAIL_FROM="a@b.test", MAIL_TEMPLATES=".",
            APP="needy:app")  # fmt: skip

    _, document, _ = examined(reliq)

    [problem] = [each for each in document["problems"] if f"RELIQ_{name}" in each]
    assert (" is wrong: " in problem) == (value is not None)


# -- reports ------------------------------------------------------------------------------


REPORTING = """
from functools import partial
from reliq import App
from reliq.app import Handler
from reliq.automations import report

async def split(tx, params):
    return []

async def rows(tx, chunk):
    yield ()

sales = report.Report(columns=("a",), split=split, rows=rows)
made = report.handlers({"sales": sales, "stock": sales})
app = App(handlers=made, secrets={"iban"})
mine = App(handlers={"report.request": partial(report.begin, {"sales": sales})})
own = App(handlers={"report.request": lambda job: None})
none = App()
"""


@pytest.fixture
def reporting(setting):
    """Set variables, where there is an App that makes reports."""
    Path("reporting.py").write_text(REPORTING)
    setting(APP="reporting:app")
    return setting


@pytest.mark.parametrize(
    ("app", "name", "has"),
    [("app", "nosuch", "sales, stock"), ("app", "bad name!", "sales, stock"), ("mine", "stock", "sales"),
     ("none", "sales", "none")],
)  # fmt: skip
def test_a_report_that_the_app_cannot_make_is_refused(reliq, sql, reporting, app, name, has):
    reporting(APP=f"reporting:{app}")

    code, out, err = reliq("report", "request", name)

    assert (code, out) == (1, "")
    assert err == (
        f"reliq: this App has no report {name!r}: it has {has}; set RELIQ_APP to the App that makes it\n"
    )
    assert sql("select count(*) from reliq.jobs") == 0


def test_a_handler_that_begins_reports_itself_knows_alone_which_there_are(reliq, reporting):
    reporting(APP="reporting:own")

    assert reliq("report", "request", "any")[0] == 0


def test_secret_fields_among_the_parameters_of_a_report_are_sealed(reliq, sql, reporting):
    reporting(ENCRYPTION_KEYS=f"2026a:{OLD}")

    assert reliq("report", "request", "sales", "--param", "iban=DE89")[0] == 0

    assert "DE89" not in sql("select payload::text from reliq.jobs")


def test_a_link_to_a_report_whose_first_job_died_says_where_to_look(reliq, setting, sql):
    setting(REPORT_SECRET="correct horse", PUBLIC_URL="https://hooks.test")
    number = make_dead(sql, kind="report.request")

    said = f"report {number} is failed: 0 rows: its first job is dead: see `reliq show {number}`\n"
    assert reliq("report", "link", number)[2] == said


def test_a_report_is_asked_for_and_has_a_link(reliq, reporting, sql):
    reporting(REPORT_SECRET="correct horse", PUBLIC_URL="https://hooks.test/reliq/")

    code, told, _ = reliq(
        "report", "request", "sales", "--param", "day=2026-11-30", "--param", "x="
    )
    assert (code, told) == (0, "report 1 is asked for; its link: reliq report link 1\n")
    assert json.loads(sql("select payload from reliq.jobs")) == {
        "report": "sales", "params": {"day": "2026-11-30", "x": ""},
    }  # fmt: skip
    now = sql("select floor(extract(epoch from now()))::int")
    code, told, how_far = reliq("report", "link", 1, "--for", "2h")

    assert (code, how_far) == (0, "report 1 is being made: 0 of ? chunks, 0 rows\n")
    base, expires, signature = re.split(r"\?expires=|&signature=", told.strip())
    assert base == "https://hooks.test/reliq/reports/1"
    assert 7_200 <= int(expires) - now < 7_260
    assert signature == report_signature(b"correct horse", 1, int(expires))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("'running', null, null, null", "is being made: 0 of 3 chunks, 0 rows"),
        ("'ready', 7, null, now()", "is ready: 7 rows"),
        ("'failed', 4, '1 is missing', now()", "is failed: 4 rows: 1 is missing"),
    ],
)
def test_a_link_comes_with_how_far_the_report_is(reliq, setting, sql, state, said):
    setting(REPORT_SECRET="correct horse", PUBLIC_URL="https://hooks.test")
    sql(
        "insert into reliq.reports (id, name, chunks, state, rows, reason, finished_at)"
        f" values (7, 'sales', 3, {state})"
    )

    assert reliq("report", "link", 7)[::2] == (0, f"report 7 {said}\n")


def test_a_link_to_no_report_is_refused(reliq, setting):
    setting(REPORT_SECRET="correct horse", PUBLIC_URL="https://hooks.test")

    code, _, said = reliq("report", "link", 7)

    assert (code, said) == (
        1, "reliq: there is no report 7: `reliq report request` makes one\n",
    )  # fmt: skip


def test_a_link_needs_two_settings_and_names_both(reliq, reporting):
    reliq("report", "request", "sales")
    code, _, said = reliq("report", "link", 1)

    assert code == 2
    assert "RELIQ_REPORT_SECRET is missing: what links" in said
    assert "RELIQ_PUBLIC_URL is missing: the receiver's address" in said


@pytest.mark.parametrize("wrong", ["day", "=1"])
def test_a_parameter_that_is_none_is_refused(reliq, sql, wrong):
    code, _, said = reliq("report", "request", "sales", "--param", wrong)

    assert code == 2
    assert "is no NAME=VALUE" in said
    assert sql("select count(*) from reliq.jobs") == 0


@pytest.mark.parametrize(
    "words",
    [("failed", "--queue", ""), ("retry", "--error", ""), ("retry", "--kind", " "), ("cancel", "--kind", ""),
     ("ignore", "7", "--why", "")],
)  # fmt: skip
def test_a_filter_or_a_reason_that_is_empty_is_refused_and_nothing_is_done(reliq, sql, words):
    sql("insert into reliq.jobs (kind, key, state, ready) values ('job', 'k', 'dead', false)")

    code, _, said = reliq(*words)

    assert (code, sql("select count(*) from reliq.jobs")) == (2, 1)
    assert "it is empty: leave it out, or say what it is" in " ".join(
        said.replace("│", " ").split()
    )
