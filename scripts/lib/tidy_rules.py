"""Rules on the text of the tree. Each takes all files and returns 'path:line: rule: what'."""

import ast
import json
import posixpath
import re

MAX_FILE_LINES = 400
MAX_TEST_LINES = 450
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

CPP = (".h", ".cpp", ".cu")
CODE = (*CPP, ".py", ".sh", ".cmake")
OWN_RULES = ("scripts/tidy.py", "scripts/lib/tidy_", "tests/style/")  # these name what they forbid
LIBRARY_FOLDERS = ("include/", "src/", "predictor/", "plan_cache/")
MAY_PRINT = ("src/cli/", "src/train/", "src/daemon/main.cpp")
MACHINE_PATH = re.compile(r"(?<![\w.$}~*-])/(?:home|root|work|Users)/[\w.-]+")
LEFTOVER = re.compile(r"\b(?:FIXME|TODO|XXX)\b")
# One waits for other processes, one makes load for benchmarks.
MAY_SLEEP = ("tests/support/waiting.py", "tests/support/simulated_runs_main.cpp")
SLEEPING = re.compile(r"\b(?:time\.sleep|sleep_(?:for|until)|u?sleep|nanosleep)\s*\(")
PRINTING = re.compile(r"std::cout\b|\b(?:std::)?(?:printf|puts|putchar)\s*\(")


def is_code(path):
    name = posixpath.basename(path)
    return path.endswith(CODE) or name == "CMakeLists.txt" or (
        path.startswith("scripts/") and "." not in name)


def without_comments_and_strings(text):
    """C++ with comments, literals and preprocessor lines blanked; line breaks stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
    directive = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.DOTALL | re.MULTILINE)

    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    return directive.sub(blank, pattern.sub(blank, text))


def cpp_functions(text):
    """(first line, last line) of every outermost function body with its signature."""
    found = []
    clean = without_comments_and_strings(text)
    depth = 0  # braces inside the current function; 0 outside
    begin = 0  # start of the declaration under way
    first_line = 0
    for position, character in enumerate(clean):
        if character == "{":
            if depth > 0:
                depth += 1
            elif opens_function(clean[begin:position]):
                depth = 1
                lead = re.match(r"(?:\s|public:|protected:|private:)*", clean[begin:position])
                first_line = clean.count("\n", 0, begin + lead.end()) + 1
            else:
                begin = position + 1
        elif character == "}":
            if depth == 1:
                found.append((first_line, clean.count("\n", 0, position) + 1))
            depth = max(0, depth - 1)
            if depth == 0:
                begin = position + 1
        elif character == ";" and depth == 0:
            begin = position + 1
    return found


def opens_function(declaration):
    """Whether a brace after this text opens a function and not a namespace, class or list."""
    text = declaration.strip()
    if re.search(r"\b(?:namespace|class|struct|union|enum)\b[^()]*$", text):
        return False
    return ")" in text and not re.search(r"=\s*[\w:<>]*$", text)


def python_functions(text):
    return [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def lengths(files):
    findings = []
    for file in files:
        if not is_code(file.path):
            continue
        lines = file.text.splitlines()
        most = MAX_TEST_LINES if "tests/" in file.path else MAX_FILE_LINES
        if len(lines) > most:
            findings.append(f"{file.path}:1: lengths: {len(lines)} lines, at most {most}")
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS and not file.path.endswith(".sh"):
                findings.append(f"{file.path}:{number}: lengths: {len(line)} columns, at most "
                                f"{MAX_COLUMNS}")
        functions = []
        if file.path.endswith(CPP):
            functions = cpp_functions(file.text)
        elif file.path.endswith(".py"):
            functions = python_functions(file.text)
        for first, last in functions:
            if last - first + 1 > MAX_FUNCTION_LINES:
                findings.append(f"{file.path}:{first}: lengths: a function of {last - first + 1} "
                                f"lines, at most {MAX_FUNCTION_LINES}")
    return findings


def plain_ascii(files):
    odd = re.compile(r"[^\t\x20-\x7e]")
    return [f"{file.path}:{number}: ascii: {character!r}"
            for file in files if is_code(file.path) or file.path.startswith("configs/")
            for number, line in enumerate(file.text.split("\n"), 1)
            for character in sorted(set(odd.findall(line)))]


def printing(files):
    findings = []
    for file in files:
        if not file.path.endswith(CPP) or not file.path.startswith(LIBRARY_FOLDERS):
            continue
        if file.path.startswith(MAY_PRINT):
            continue
        clean = without_comments_and_strings(file.text)
        for number, line in enumerate(clean.splitlines(), 1):
            if PRINTING.search(line):
                findings.append(f"{file.path}:{number}: printing: libraries never print")
    return findings


def sleeps(files):
    findings = []
    for file in files:
        is_test = file.path.startswith(("tests/", "python/tests/"))
        if not is_test or file.path.startswith((*MAY_SLEEP, *OWN_RULES)):
            continue
        for number, line in enumerate(file.text.splitlines(), 1):
            if SLEEPING.search(line):
                findings.append(f"{file.path}:{number}: sleeps: tests wait for what happens")
    return findings


def leftovers(files):
    return [f"{file.path}:{number}: leftovers: {match[0]}"
            for file in files if is_code(file.path) and not file.path.startswith(OWN_RULES)
            for number, line in enumerate(file.text.splitlines(), 1)
            for match in [LEFTOVER.search(line)] if match]


def machine_paths(files):
    return [f"{file.path}:{number}: machine path: {match[0]}"
            for file in files if not file.path.startswith(OWN_RULES)
            for number, line in enumerate(file.text.splitlines(), 1)
            for match in [MACHINE_PATH.search(line)] if match]


def header_form(files):
    findings = []
    for file in files:
        if not file.path.endswith(".h"):
            continue
        if not file.text.startswith("// "):
            findings.append(f"{file.path}:1: header form: expected a comment on what it is for")
        if "\n#pragma once\n" not in file.text:
            findings.append(f"{file.path}:1: header form: #pragma once is missing")
    return findings


def unnamed_sources(files):
    """Sources and tests that no CMakeLists above them names; comments do not count."""
    named = set()
    for file in files:
        name = posixpath.basename(file.path)
        if name != "CMakeLists.txt" and not file.path.startswith("cmake/"):
            continue
        folder = "" if file.path.startswith("cmake/") else posixpath.dirname(file.path)
        text = re.sub(r"#[^\n]*", "", file.text).replace("${PROJECT_SOURCE_DIR}", "//")
        # tests/compile_fail names its sources without the suffix, as the names of tests.
        stems = re.findall(r"pudica_add_compile_fail\((\w+)", text)
        words = re.findall(r"[\w./-]+\.(?:cpp|cu|py|h)\b", text)
        for word in words + [stem + ".cpp" for stem in stems]:
            base = "" if word.startswith("//") else folder
            named.add(posixpath.normpath(posixpath.join(base, word.lstrip("/"))))
    findings = []
    for file in files:
        source = file.path.endswith((".cpp", ".cu")) or (
            file.path.startswith("tests/") and file.path.endswith("_test.py"))
        public = file.path.startswith("include/") and file.path.endswith(".h")
        if (source or public) and file.path not in named and not file.path.startswith("python/"):
            findings.append(f"{file.path}:1: unnamed: no CMakeLists names this file")
    return findings


def leaf_keys(value, section_of):
    """Dotted paths of the leaves; `section_of` gives a section's members, None for a leaf."""
    paths = set()
    for name, inner in value.items():
        members = section_of(inner)
        paths |= {name} if members is None else {f"{name}.{leaf}" for leaf in members}
    return paths


def config_keys(files):
    """Default file, schema and documentation name the same keys."""
    texts = {file.path: file.text for file in files}
    default, schema = "configs/default.json", "configs/pudica.schema.json"
    document = "docs/configuration.md"
    if default not in texts:
        return []
    findings = [f"{path}:1: config keys: missing" for path in (schema, document)
                if path not in texts]
    if findings:
        return findings
    keys = leaf_keys(json.loads(texts[default]), lambda v: v if isinstance(v, dict) else None)
    in_schema = leaf_keys(json.loads(texts[schema])["properties"], lambda v: v.get("properties"))
    in_document = set(re.findall(r"^\| `([a-z_.]+)` \|", texts[document], re.MULTILINE))
    for path, found in ((schema, in_schema), (document, in_document)):
        findings += [f"{path}:1: config keys: {key} is missing" for key in sorted(keys - found)]
        findings += [f"{path}:1: config keys: {key} is not in {default}"
                     for key in sorted(found - keys)]
    return findings


RULES = (lengths, plain_ascii, printing, sleeps, leftovers, machine_paths, header_form,
         unnamed_sources, config_keys)
