"""`python -m pages`: write the generated files that are checked in (`make faithfulness`)."""

from __future__ import annotations

from pages import coming_from
from pages.faithfulness import ROOT, write

if __name__ == "__main__":
    for file in [*write(), *coming_from.write()]:
        print(f"written: {file.relative_to(ROOT)}")
