"""Small trees for the surveyor, and a child session that keeps what it is given."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pisub.agents.surveyor import scan
from pisub.agents.surveyor.model import Listing, Survey, SurveyedFile
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus, Question

_T = TypeVar("_T")

SHOP: Mapping[str, str] = {
    "README.md": "# Shop\n\nTODO in prose is no note.\n",
    "LICENSE": "MIT\n",
    "Makefile": "VAR := 1\nall: test\n\ttrue\n.PHONY: all\ntest:\n\ttrue\n",
    "pyproject.toml": (
        '[project]\nname = "shop"\n[project.scripts]\nshop = "shop.app:main"\n[tool.pytest.ini_options]\n'
    ),
    "package.json": '{"main": "web/index.js", "scripts": {"build": "tsc | cat"}, "devDependencies": {"vitest": "1"}}',
    "Dockerfile": 'FROM scratch\nENTRYPOINT ["shop"]\n',
    ".gitignore": "*.log\n/build/\n!keep.log\n",
    "noise.log": "x\n",
    "keep.log": "x\n",
    "build/out.py": "x = 1\n",
    "node_modules/left/index.js": "x\n",
    "src/shop/__init__.py": '"""The shop."""\n',
    "src/shop/__main__.py": "from shop import app\n\napp.main()\n",
    "src/shop/app.py": (
        "import os\n\nimport requests\nfrom . import stock\nfrom .money import Price\n\n\n"
        'def main() -> None:\n    """Run ``it``: a | b.\n\n    More.\n    """\n    # TODO: ask `who` pays | how\n'
    ),
    "src/shop/money.py": (
        "from shop.stock import Item\n\n\nclass Price:\n    '''A price.'''\n\n    def tax(self): ...\n"
    ),
    "src/shop/stock.py": "from shop import money\n\n\nclass Item: ...\n# FIXME\n",
    "src/shop/lazy.py": "def f():\n    from shop import app\n",
    "src/shop/broken.py": "def (:\n",
    "tests/test_app.py": (
        "import pytest\nfrom shop import app\n\n\ndef test_one(): ...\n\n\nclass TestTwo:\n    def test_a(self): ...\n"
    ),
    "web/index.js": "import {a} from './lib/tool';\nconst b = require('left');\nexport const go = async () => a;\n",
    "web/lib/tool.ts": "import * as root from '../index.js';\nexport function a() {}\n// XXX odd\n",
    "web/index.test.ts": "import '@scope/pkg/deep';\ntest('works', () => {});\nit.only('too', () => {});\n",
}


def make_tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below a new directory."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def listing_of(root: Path, **limits: int) -> Listing:
    """Walk a tree to the end."""
    return _result(scan.walk(root, **limits))


def survey_of(root: Path, *, name: str = "tree") -> Survey:
    """Survey a tree without git."""
    listing = listing_of(root)
    read = list(scan.read_files(root, listing.paths))
    return Survey(
        name=name,
        listing=listing,
        files=tuple(each for each in read if isinstance(each, SurveyedFile)),
        vanished=tuple(each for each in read if isinstance(each, str)),
    )


class RecordingChild:
    """A child session without a runner: answers come from a list, everything else is kept."""

    def __init__(self, cwd: Path, out: Path, values: Sequence[str | None], status: AskStatus = AskStatus.OK) -> None:
        self.task = "survey this"
        self.cwd = cwd
        self.asked: list[Question] = []
        self.logs: list[str] = []
        self.tools: list[str] = []
        self._out = out
        self._values = values
        self._status = status

    async def ask(self, questions: Sequence[Question], *, why: str = "") -> AskResult:
        """Answer with the values given."""
        self.asked.extend(questions)
        answers = tuple(None if value is None else Answer(value=value, by="test", at=1) for value in self._values)
        return AskResult(status=self._status, answers=answers, reason="" if self._status == "ok" else "nobody is there")

    def log(self, text: str) -> None:
        """Keep a line."""
        self.logs.append(text)

    @contextmanager
    def tool(self, name: str, /, **args: object) -> Generator[None, None, None]:
        """Keep a step's name."""
        self.tools.append(name)
        yield

    def write(self, path: str, content: str | bytes) -> Path:
        """Write the artifact."""
        assert isinstance(content, str)
        self._out.mkdir(exist_ok=True)
        (self._out / path).write_text(content, encoding="utf-8")
        return self._out / path


def _result(steps: Generator[int, None, _T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: _T = done.value
            return result
