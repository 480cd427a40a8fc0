"""Mail through the queue: a real Postgres, a real worker, a real mail server."""

import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from reliq.app import App, Handler
from reliq.automations.mail import KIND, Mail, handler
from reliq.domain.retry import RetryPolicy
from reliq.postgres.desk import Desk
from reliq.postgres.enqueue import enqueue
from reliq.settings import Settings
from tests.fixtures.mailbox import DROP, Mailbox, open_mailbox
from tests.fixtures.store import OpenQueue
from tests.integration.test_worker_loop import new_worker

pytestmark = pytest.mark.anyio

SOON = RetryPolicy(base=timedelta(seconds=0.01), cap=timedelta(seconds=0.02), attempts_max=4)
RECEIPT = Mail(to="ada@example.org", template="receipt", user=7, event="paid", data={"order": 42})

PAGE = Path(__file__).parents[2] / "docs" / "automations.md"

Work = Callable[..., Awaitable[None]]


@pytest.fixture
def work(pool: asyncpg.Pool, open_queue: OpenQueue, tmp_path: Path) -> Work:
    """Have workers send mails to a mailbox until every job has ended."""

    async def run(
        box: Mailbox, *, workers: int = 1, unknown: str = "repeat",
        template: str = "Subject: Order {{ order }}\n\nThank you.\n",
        time_limit: timedelta = timedelta(seconds=30),
    ) -> None:  # fmt: skip
        (tmp_path / "receipt.txt").write_text(template)
        settings = Settings(
            _env_file=None, database_url="postgresql://nowhere/none",
            mail_url=f"smtp+plain://127.0.0.1:{box.port}", mail_from="shop@example.com",
            mail_templates=tmp_path, mail_unknown=unknown,
        )  # fmt: skip
        mails = Handler(handler(settings).run, SOON, time_limit, payload=Mail)
        app = App(handlers={KIND: mails})
        several = [
            new_worker(open_queue(f"w{n}", kinds=(KIND,)), app) for n in range(1, workers + 1)
        ]
        async with anyio.create_task_group() as tasks:
            for worker in several:
                tasks.start_soon(worker.run)
            with anyio.fail_after(20):
                while await pool.fetchval(
                    "select count(*) from reliq.jobs where state in ('queued', 'running')"
                ):
                    await anyio.sleep(0.01)
            for worker in several:
                worker.stop.set()

    return run


async def jobs(pool: asyncpg.Pool) -> list[Any]:
    return await pool.fetch("select * from reliq.jobs order by id")


async def ledger(pool: asyncpg.Pool) -> list[Any]:
    return await pool.fetch("select * from reliq.effect_keys")


async def test_two_jobs_for_one_mail_send_it_once_and_both_know_its_number(pool, work: Work):
    for _ in range(2):
        await enqueue(pool, KIND, RECEIPT)

    async with open_mailbox(Mailbox()) as box:
        await work(box, workers=2)

    [mail] = box.seen
    results = [json.loads(job["result"]) for job in await jobs(pool)]
    [effect] = await ledger(pool)
    assert results == [json.loads(effect["result"])] * 2
    assert results[0]["message_id"] == mail["Message-ID"]
    assert results[0]["answer"] == "250 OK queued as 1"
    assert effect["key"] == "mail:7:receipt:paid"


async def test_a_mail_whose_answer_was_lost_is_repeated_under_its_message_id(pool, work: Work):
    await enqueue(pool, KIND, RECEIPT)

    async with open_mailbox(Mailbox(data=[DROP])) as box:
        await work(box)

    [job] = await jobs(pool)
    assert (job["state"], job["attempt"], len(box.seen), len(set(box.ids))) == (
        "succeeded", 2, 2, 1
    )  # fmt: skip


async def test_a_mail_that_is_held_is_sent_by_the_words_of_its_dead_letter(pool, work: Work):
    await enqueue(pool, KIND, RECEIPT)

    async with open_mailbox(Mailbox(data=[DROP])) as box:
        await work(box, unknown="hold")
        [job] = await jobs(pool)
        assert (job["state"], job["dead_reason"], len(box.seen)) == ("dead", "gave_up", 1)
        assert box.ids[0] in job["last_error"]

        said = job["last_error"]
        await pool.execute(said[said.index("select reliq.enqueue") :])
        await work(box, unknown="hold")

    assert [job["state"] for job in await jobs(pool)] == ["dead", "succeeded"]
    assert len(box.seen) == 2
    assert len(set(box.ids)) == 1


async def test_one_word_of_a_person_sends_one_copy_whoever_dies_over_it(pool, work: Work):
    async def say_the_word() -> None:
        said = (await jobs(pool))[-1]["last_error"]
        await pool.execute(said[said.index("select reliq.enqueue") :])

    await enqueue(pool, KIND, RECEIPT)
    async with open_mailbox(Mailbox(data=[DROP])) as box:
        await work(box, unknown="hold")
        await say_the_word()
        box.hangs = True
        await work(box, unknown="hold", time_limit=timedelta(seconds=0.3))
        assert len(box.seen) == 2, "the next attempt finds that the word was used"
        box.hangs = False

        letter = (await jobs(pool))[-1]["id"]
        await Desk(pool).requeue_job(letter, by="ada", reason="x", even_ignored=False)
        await work(box, unknown="hold")
        assert len(box.seen) == 2, "to retry is no word"

        await say_the_word()
        await work(box, unknown="hold")

    ended = [(job["dead_reason"], job["attempt"]) for job in await jobs(pool)]
    assert ended == [("gave_up", 2), ("gave_up", 2), ("gave_up", 1), (None, 1)]
    assert len(box.seen) == 3
    assert len(set(box.ids)) == 1
    effects = [(effect["key"], effect["done_at"] is not None) for effect in await ledger(pool)]
    assert sorted(done for key, done in effects if ":repeat:" in key) == [False, True]


async def test_a_text_that_is_refused_for_now_is_new_to_the_next_attempt(pool, work: Work):
    await enqueue(pool, KIND, RECEIPT)

    async with open_mailbox(Mailbox(data=["451 full", "452 full"])) as box:
        await work(box, unknown="hold")

    [job] = await jobs(pool)
    assert (job["state"], job["attempt"], len(box.seen)) == ("succeeded", 3, 3)


async def test_what_the_page_shows_is_sent(pool, work: Work):
    _, section = PAGE.read_text(encoding="utf-8").split("\n## Mail")
    [statement] = re.findall(r"```sql\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    [template] = re.findall(r"```\n(Subject:.*?)```", section, re.DOTALL)
    await pool.execute(statement)

    async with open_mailbox(Mailbox()) as box:
        await work(box, template=template)

    [mail] = box.seen
    assert mail["Subject"] == "Your order, 12.50 €"
    assert mail.get_content() == "Thank you. We have got your order of 12.50 €.\n"


@pytest.mark.parametrize("at", ["rcpt", "data"])
async def test_a_refusal_for_good_is_a_dead_letter_and_leaves_nothing_begun(pool, work: Work, at):
    await enqueue(pool, KIND, RECEIPT)

    async with open_mailbox(Mailbox(**{at: ["550 not wanted"]})) as box:
        await work(box)

    [job] = await jobs(pool)
    assert (job["state"], job["dead_reason"], job["attempt"]) == ("dead", "permanent", 1)
    assert "550 not wanted" in job["last_error"]
    assert await pool.fetchval("select status from reliq.attempts") == 550
    assert await ledger(pool) == []
    assert len(box.seen) == (at == "data")
