"""
Seal named fields of payloads with the newest of some keys, and open them with any.

Fernet, of the package `cryptography`, which only those need who set keys: `reliq[encryption]`.
"""

import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from reliq.domain.job import Claim
from reliq.domain.sealed import (
    NOTHING,
    SEALED,
    changed,
    check_depth,
    is_sealed,
    is_to_be_sealed,
    pattern,
    read_keys,
    token_of,
)
from reliq.domain.text import storable_json
from reliq.errors import ConfigInvalid, KeyUnknown, TemporaryError


@dataclass(frozen=True, slots=True)
class Sealing:
    """
    Which fields are sealed, and with what.

    `keys` is what RELIQ_ENCRYPTION_KEYS is: `2026b:<key>,2026a:<key>`; the first seals, all of them
    open. `fields` are the names of `App.secrets`.

    Raises:
        ValueError: the keys are written wrong.
        ConfigInvalid: the package `cryptography` is not installed.

    """

    keys: str = field(repr=False)
    fields: AbstractSet[str]
    newest: str = field(init=False)
    """The id of the key that seals."""
    _fernets: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = read_keys(self.keys)
        try:
            from cryptography.fernet import Fernet  # noqa: PLC0415 - who has no keys needs none
        except ImportError:
            raise ConfigInvalid(
                [
                    "RELIQ_ENCRYPTION_KEYS needs the package cryptography: install reliq with its extra `encryption`"
                ]
            ) from None
        object.__setattr__(self, "newest", next(iter(keys)))
        object.__setattr__(self, "_fernets", {name: Fernet(key) for name, key in keys.items()})

    @property
    def outdated(self) -> str:
        """What finds stored payloads that `reseal` would change, in the words of Postgres."""
        return pattern(self.newest, self.fields)

    def seal(self, payload_json: str) -> str:
        """
        Seal the named fields of a payload, at any depth.

        Raises:
            ValueError: it is nested too deep to be opened for certain.

        """
        check_depth(payload_json)
        return storable_json(changed(payload_json, self._sealed))

    def open(self, payload_json: str) -> str:
        """
        Return what was sealed.

        Raises:
            KeyUnknown: a value cannot be opened; the message names its field and its key.

        """
        return json.dumps(changed(payload_json, self._opened))

    def reseal(self, payload_json: str) -> str:
        """
        Seal with the newest key what is sealed with another, or not at all.

        Raises:
            KeyUnknown: a value cannot be opened; the message names its field and its key.
            ValueError: the payload holds a number that Python has no word for, or is too deep.

        """
        check_depth(payload_json)
        return storable_json(changed(payload_json, self._resealed))

    def _sealed(self, name: object, value: Any) -> Any:
        return self._token(value) if is_to_be_sealed(name, value, self.fields) else NOTHING

    def _token(self, value: Any) -> dict[str, str]:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return {
            SEALED: f"{self.newest}:{self._fernets[self.newest].encrypt(text.encode()).decode()}"
        }

    def _opened(self, name: object, value: Any) -> Any:
        if (found := token_of(value)) is None:
            return NOTHING
        from cryptography.fernet import InvalidToken  # noqa: PLC0415

        key_id, token = found
        if key_id not in self._fernets:
            raise KeyUnknown(
                key_id, f"{name} is sealed with key {key_id!r}, which is not among the keys here"
            )
        try:
            return json.loads(self._fernets[key_id].decrypt(token))
        except (InvalidToken, ValueError):
            raise KeyUnknown(
                key_id,
                f"{name} does not open with key {key_id!r}: that is another key of the same id, "
                "or the stored value was changed",
            ) from None

    def _resealed(self, name: object, value: Any) -> Any:
        found = token_of(value)
        if found is None:
            return self._sealed(name, value)
        value = self._opened(name, value)  # also if it is of the newest: it may be another's
        return NOTHING if found[0] == self.newest else self._token(value)


def opened(claim: Claim, sealing: Sealing | None) -> Claim:
    """
    Return a claim whose payload has sealed values as its handler sees it: with nothing sealed.

    Raises:
        TemporaryError: a value cannot be opened here, perhaps by another worker, or later. The job
            has not run, and its payload stays as it is.

    """
    if not is_sealed(claim.payload_json):  # a field of that name, with something of its own
        return claim
    why: object = "a field is sealed, and there are no keys here"
    if sealing is not None:
        try:
            return claim._replace(payload_json=sealing.open(claim.payload_json))
        except KeyUnknown as error:
            why = error
    raise TemporaryError(
        f"job {claim.job_id} did not run: of its payload {why}; mend RELIQ_ENCRYPTION_KEYS of the "
        f"workers, and if the job is dead by then, `reliq retry {claim.job_id}`"
    )
