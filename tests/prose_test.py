#!/usr/bin/env python3
"""README, docs and folder READMEs: at most 18 words a sentence in the mean, 40 in one, no private word; none in
the comments of headers either.

    prose_test.py SOURCE_DIR
"""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

SAMPLE = """# A heading is not counted at all

One two three. Four five
six seven!

| a cell | the other ways |
| --- | --- |
- An item of `some code` here

```text
not counted either
```
"""

SAMPLE_OF_CODE = """// Defined in ways.hpp.
/* Two
   ways. */
const char* ways = "http://ways";
"""


def self_test(prose):
    """What is wrong with the rules themselves, as texts."""
    found = prose.Prose(SAMPLE)
    problems = []
    if (found.words, round(found.mean, 3), found.longest) != (12, 4.0, 5):
        problems.append(f"the sample has {found.words} words, mean {found.mean}, longest {found.longest}")
    if len(prose.findings(SAMPLE, "sample")) != 1:
        problems.append("'ways' in the sample is not found once")
    if len(prose.findings(SAMPLE_OF_CODE, "sample.hpp")) != 1:
        problems.append("'ways' in the comment of a header is not found once")
    return problems


def main():
    sys.dont_write_bytecode = True
    source = Path(sys.argv[1])
    loader = SourceFileLoader("prose", str(source / "scripts/prose"))
    prose = importlib.util.module_from_spec(importlib.util.spec_from_loader("prose", loader))
    loader.exec_module(prose)
    failed = self_test(prose)
    pages = prose.pages()
    for page in pages:
        text, name = page.read_text(encoding="utf-8"), page.relative_to(source)
        found = prose.Prose(text)
        problems = prose.findings(text, name)
        if not found.is_plain:
            line, sentence, count, _ = found.by_length[0]
            problems.append(f"{name}: mean {found.mean:.1f}, longest {count} at line {line}: {sentence[:100]}")
        failed += ["; ".join(problems)] if problems else []
    headers = prose.headers()
    for header in headers:
        problems = prose.findings(header.read_text(encoding="utf-8"), header.relative_to(source))
        failed += ["; ".join(problems)] if problems else []
    for problem in failed:
        print(f"FAILED: {problem}")
    print(f"{len(pages) + len(headers) + 1 - len(failed)} passed, {len(failed)} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
