"""Whether code changed between two texts of a file, comments and blank lines aside."""

import ast
import re

CPP = (".h", ".cpp", ".cu")
TEXT = (".md",)
CPP_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<literal>R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')"
    r"|(?P<code>.)", re.DOTALL)


def cpp_code(text):
    """Without comments, blank lines and the white space at both ends of lines; literals stay."""
    parts, code = [], []

    def end_code():
        parts.append(re.sub(r"[ \t]*\n\s*", "\n", "".join(code)))
        code.clear()

    for token in CPP_TOKEN.finditer(text):
        if token["literal"] is not None:
            end_code()
            parts.append(token["literal"])
        else:
            code.append(" " if token["comment"] is not None else token["code"])
    end_code()
    return "".join(parts).strip()


def python_code(text):
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return text


def same_code(path, before, after):
    if path.endswith(TEXT):
        return True
    if path.endswith(CPP):
        return cpp_code(before) == cpp_code(after)
    if path.endswith(".py"):
        return python_code(before) == python_code(after)
    return before == after
