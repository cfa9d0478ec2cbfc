"""Results that several scripts write: each replaces its own section of the file."""

import re


def replace_section(path, title, heading, text):
    """The section "## heading" with this text, in its old place or at the end. `title`: of a file
    that is not there yet."""
    whole = path.read_text(encoding="utf-8") if path.exists() else f"# {title}\n"
    section = f"## {heading}\n\n{text.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(whole):
        whole = pattern.sub(lambda _: section + "\n", whole, count=1)
    else:
        whole = whole.rstrip("\n") + "\n\n" + section
    path.write_text(whole.rstrip("\n") + "\n", encoding="utf-8")
