"""What a worker and the process of an isolated handler tell each other."""

from datetime import timedelta

import pytest

from reliq.domain.job import Claim, Fence, JobId, Kind
from reliq.domain.outcome import Again, Done, GiveUp, Raised
from reliq.domain.text import TEXT_MAX, error_text
from reliq.errors import PermanentError, TemporaryError
from reliq.worker.isolation import _ANSWER_BYTES_MAX, answer, heard, order, ordered

SECOND = timedelta(seconds=1)


class CardDeclined(PermanentError):
    pass


def test_a_claim_comes_through_as_it_is():
    claim = Claim(
        JobId(7), Fence(9), Kind("report.build"), "k\ud800", '{"n": 1}', 2, 8, 1, None, 1.5 * SECOND
    )

    assert ordered(order(claim, 90 * SECOND)) == (claim, 90.0)


@pytest.mark.parametrize(
    "ending", [Done(), Done({"pages": 3}), Again(1.5 * SECOND), GiveUp("not worth it")]
)
def test_an_outcome_comes_through_as_it_is(ending):
    assert heard(answer(ending)) == (ending, None, None)


@pytest.mark.parametrize(
    ("error", "kind", "facts"),
    [
        (ValueError("no: not so\n"), Exception, {}),
        (ValueError(), Exception, {}),
        (PermanentError("no", status=422), PermanentError, {"status": 422}),
        (CardDeclined("no"), PermanentError, {"status": None}),
        (TemporaryError("no"), TemporaryError, {"status": None, "after": None}),
        (
            TemporaryError("no", status=429, after=90 * SECOND),
            TemporaryError,
            {"status": 429, "after": 90 * SECOND},
        ),
    ],
)
def test_an_error_comes_through_with_its_name_its_words_and_what_is_decided_by(error, kind, facts):
    ending, where, _ = heard(answer(Raised(error), "shop.py:12 in pay"))

    assert isinstance(ending, Raised)
    assert isinstance(ending.error, kind)
    assert error_text(ending.error) == error_text(error)
    assert {name: getattr(ending.error, name) for name in facts} == facts
    assert isinstance(ending.error, PermanentError) == isinstance(error, PermanentError)
    assert where == "shop.py:12 in pay"


@pytest.mark.parametrize("error", [ValueError("\U0001f6d1" * 50_000), ValueError("\n" * 50_000)])
def test_an_answer_is_one_line_and_not_too_long_to_be_heard(error):
    line = answer(Raised(error))

    assert line.count(b"\n") == 1
    assert len(line) < _ANSWER_BYTES_MAX
    assert len(error_text(error)) == TEXT_MAX
