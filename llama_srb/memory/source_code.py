"""Whether the lines of a text look like source code, in which `# comment` is no heading. Pure."""

from __future__ import annotations

import re

LOOKED_AT = 16 << 10  # characters of a text
LEAST, SHARE = 2, 0.4  # lines of code; of code most files have more, READMEs with much code at most 0.3
LONGEST = 160  # characters of a line of code
_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(
    r"""[ \t]*(?:
      (?:async[ ]+)?def[ ]+\w+[ ]*\(
    | class[ ]+\w+[ ]*[:({]
    | @\w[\w.]*(?:\(.*)?$
    | (?:if|elif|else|for|while|with|try|except|finally)\b[^.]*[:{]$
    | (?:if|elif|while|for)[ ].*;[ ]*(?:then|do)$
    | from[ ]+[\w.]+[ ]+import\b
    | import[ ]+[\w.]+(?:[ ]+as[ ]+\w+)?;?$
    | (?:[\w.-]+[ ]+)?[$\w.\[\]"'-]+(?::[ ]*[\w\[\].|"']+)?[ ]*[-+*/|&:?]?=(?!=)
    | \[\[?[\w."'-]+\]\]?$
    | (?:then|do|else|fi|done|esac|end|;;)$
    | [\w.$]+\(.*\)[;:{]?$
    | .*[{}(\[]$
    | .*\)[ ]*;$
    | [)\]}]+[,;]?$
    )
    | [ \t]+(?:return|yield|raise|pass|break|continue)\b""",
    re.VERBOSE,
)


def looks_like_source(text: str) -> bool:
    """Whether many lines of a text's beginning are code; empty ones, comments and fenced code don't count."""
    begin = _FENCED.sub("", text[:LOOKED_AT])
    lines = [one.rstrip() for one in begin.split("\n") if one.strip() and not one.lstrip().startswith("#")]
    n_code = sum(1 for one in lines if len(one) <= LONGEST and _CODE.match(one))
    return n_code >= LEAST and n_code > SHARE * len(lines)
