"""bench/manifest.json: every result that is kept, the command that makes it, and which code it
speaks of."""

import dataclasses
import json
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Kept:
    """One result: the file bench/results/NAME.json."""

    name: str
    command: str  # repository-relative, without where the result goes
    sources: tuple[str, ...]  # files and folders
    minutes: float  # on two cores
    about: str  # what it tells, in a sentence
    figures: dict[str, str]  # what the page shows: label -> path of keys
    cases: str  # or, of benchmarks with cases: a pattern that their names match
    needs_card: bool  # it cannot be made where there is no CUDA device
    root: pathlib.Path

    @property
    def path(self):
        return f"bench/results/{self.name}.json"

    def read(self):
        """The result; None where there is none, a message where it cannot be read."""
        file = self.root / self.path
        if not file.exists():
            return None
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return f"cannot be read: {error}"
        return result if isinstance(result, dict) else "is no JSON object"


def expanded(names, groups):
    """The paths of `names`, with those of the groups that are named @GROUP."""
    paths = []
    for name in names:
        paths += expanded(groups[name[1:]], groups) if name.startswith("@") else [name]
    return tuple(dict.fromkeys(paths))


def load(root):
    """In the manifest's order, which is that of renewing: what is short comes first."""
    root = pathlib.Path(root)
    manifest = json.loads((root / "bench/manifest.json").read_text(encoding="utf-8"))
    kept = []
    for name, entry in manifest["results"].items():
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"bench/manifest.json: '{name}' seen, expected a file's name")
        kept.append(Kept(
            name=name, command=entry["command"], minutes=entry["minutes"], about=entry["about"],
            sources=expanded(entry["sources"], manifest["sources"]),
            figures=entry.get("figures", {}), cases=entry.get("cases", ""),
            needs_card=entry.get("needs_card", False), root=root))
    return kept
