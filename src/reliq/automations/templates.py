"""
The texts of mails: `NAME.txt`, whose first line is `Subject: …`, and `NAME.html` if there is one.

Jinja2 fills them in. In HTML all values are escaped, in plain text none; a value that a template asks for
and does not get is an error, not a gap. What is changed in the folder is in the next mail.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from reliq.errors import PermanentError

SUBJECT: Final = "Subject:"

COMPILED_MAX: Final = 100
"""Texts that are kept compiled, of each sort."""

_NAME: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
"""No separators: a job does not name files outside of the folder."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a template and its values came to; `html` is None where there is none."""

    subject: str
    plain: str
    html: str | None

    @property
    def digest(self) -> str:
        """Name the text: the same values in the same version of a template come to the same."""
        whole = "\0".join((self.subject, self.plain, self.html or ""))
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(slots=True)
class Templates:
    """The templates of a folder."""

    folder: Path
    _compile: Mapping[bool, Callable[[str], Any]] = field(init=False, default_factory=dict)

    def fill(self, name: str, values: dict[str, Any]) -> Text:
        """
        Fill in a template.

        Raises:
            PermanentError: there is no such template, it is written wrong, or lacks a value.

        """
        from jinja2 import TemplateError  # noqa: PLC0415 - who sends no mail needs none

        if not _NAME.fullmatch(name):
            raise PermanentError(f"{name[:100]!r} is no name of a template: letters, digits, . _ -")
        html = self.folder / f"{name}.html"
        try:
            head, _, body = self._source(name).partition("\n")
            return Text(
                subject=self._filled(head.removeprefix(SUBJECT).strip(), values),
                plain=self._filled(body.lstrip("\n"), values),
                html=self._filled(html.read_text("utf-8"), values, escape=True)
                if html.is_file()
                else None,
            )
        except PermanentError:
            raise
        except TemplateError as error:
            raise PermanentError(f"the template {name!r} cannot be filled in: {error}") from None
        except Exception as error:  # noqa: BLE001 - what a template calls may raise anything
            raise PermanentError(
                f"the template {name!r} cannot be filled in: {type(error).__name__}: {error}"
            ) from None

    def _source(self, name: str) -> str:
        path = self.folder / f"{name}.txt"
        if not path.is_file():
            raise PermanentError(f"there is no template {path}")
        source = path.read_text("utf-8")
        if not source.startswith(SUBJECT):
            raise PermanentError(f"{path} does not begin with `{SUBJECT} …`")
        return source

    def _filled(self, source: str, values: dict[str, Any], *, escape: bool = False) -> str:
        """Fill in a text; the subject by itself, so that a value that breaks its line is seen."""
        if not self._compile:
            self._compile = _compilers(self.folder)
        text: str = self._compile[escape](source).render(values)
        return text


def _compilers(folder: Path) -> dict[bool, Callable[[str], Any]]:
    """Make the two ways to read a template, without escapes and with; one may include another."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    return {
        escape: lru_cache(COMPILED_MAX)(
            Environment(
                loader=FileSystemLoader(folder), undefined=StrictUndefined,
                autoescape=escape,  # noqa: S701 - a plain text has no markup to escape
                keep_trailing_newline=True,
            ).from_string
        )
        for escape in (False, True)
    }  # fmt: skip
