"""Settings as YAML: a file is read strictly, and a whole tree is written."""

import io
import re
from pathlib import Path
from typing import Any

import yaml

from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.formatting import shown
from chargpt.settings import to_dict

NULL = "tag:yaml.org,2002:null"
MAX_BYTES = 1_000_000  # a larger YAML file is not a configuration


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The settings in a YAML file, section by section, as they are typed. Raises UserError if it is not a mapping."""
    path = Path(path)
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UserError(f"{shown(path)}: larger than {MAX_BYTES:,} bytes; give a YAML file of settings")
    try:
        tree = yaml.load(io.StringIO(data.decode("utf-8")), _StrictLoader)
    except UnicodeDecodeError as error:
        raise UserError(f"{shown(path)}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:  # a character beyond Unicode
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise UserError(f"{shown(path)}:{line} not valid YAML ({problem}); check indents, colons, odd characters") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        kind = "a list" if isinstance(tree, list) else "a single value"
        raise UserError(f"{shown(path)}: holds {kind}; write sections such as `train:` with keys below them")
    return tree


def to_yaml(config: Config) -> str:
    """The whole tree as YAML that `read_yaml` and `apply` turn back into an equal Config."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


class _StrictLoader(yaml.BaseLoader):
    """Each value is the text that was typed, or None: no rule of YAML reads 010 as 8 or runs code. Repeated keys are errors,
    and aliases, a few lines of which can fill the memory."""

    yaml_implicit_resolvers = dict.fromkeys(["~", "n", "N", ""], [(NULL, re.compile("(~|null|Null|NULL|)$"))])
    yaml_constructors = {NULL: lambda loader, node: None}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
