"""Variables in files of Pegasus: ``${NAME}``, put in before anything else is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import repr as shown

from network_provisioner.base.errors import InputError, printable

_VARIABLE = re.compile(r"(\\?)\$\{([^}]*)\}")


def expanded(text: str, name: str, variables: Mapping[str, str]) -> str:
    """``text`` with its variables put in, as Pegasus reads every file (VariableExpander.java):
    in comments too, names in any case, values once more, and ``\\${`` stands for ``${``.

    Raises InputError with ``name`` and line for a variable that is not set.
    """
    if "${" not in text:
        return text
    in_any_case = {key.lower(): value for key, value in variables.items()}

    def put_in(line: str, number: int, around: tuple[str, ...] = ()) -> str:
        def value_of(found: re.Match[str]) -> str:
            if found[1]:
                return "${" + found[2] + "}"
            variable = found[2].partition(":-")[0]
            value = variables.get(variable, in_any_case.get(variable.lower()))
            if value is None or variable in around:
                problem = "is not set" if value is None else "stands for itself"
                raise InputError(
                    f"{name}:{number}: variable {printable(shown(variable))} {problem}, expected a "
                    "value in the environment, or as 'env.…' in Pegasus's properties"
                )
            return put_in(value, number, (*around, variable)) if "${" in value else value

        return _VARIABLE.sub(value_of, line) if "${" in line else line

    return "\n".join(put_in(line, number) for number, line in enumerate(text.split("\n"), 1))


def escaped(text: str) -> str:
    """``text`` so that :func:`expanded` gives it back."""
    return text.replace("${", "\\${")
