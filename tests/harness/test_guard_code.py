"""Text that is run as code: making it is honest, hiding it is not."""

from __future__ import annotations

import ast
import textwrap

import pytest

from harness.worker.guard.inspection import inspect_candidate

HEAD = "import ast, base64, codecs, os, re, string, sys, textwrap, zlib\nimport torch\nns = {}\n"

HIDDEN = {
    "characters, joined": "exec(''.join(chr(c) for c in [112, 97, 115, 115]))",
    "characters, mapped": "exec(''.join(map(chr, [112, 97, 115, 115])))",
    "characters, one by one": "s = ''\nfor c in [112, 97]:\n    s += chr(c)\nexec(s)",
    "characters, one by one, in full": "s = ''\nfor c in [112, 97]:\n    s = s + chr(c)\nexec(s)",
    "characters after a header": "s = 'import torch\\n'\nfor c in [112, 97]:\n    s += chr(c ^ 3)\nexec(s)",
    "characters in a row": "exec(chr(112) + chr(97) + chr(115) + chr(115))",
    "characters in a template": "exec(f'{chr(112)}{chr(97)}{chr(115)}{chr(115)}')",
    "characters in a list": "p = []\nfor c in [112, 97]:\n    p.append(chr(c))\nexec(''.join(p))",
    "characters with something between": "exec(' '.join(map(chr, [112, 97])).replace(' ', ''))",
    "characters of a tensor": "def f(x):\n    exec(''.join(chr(int(v)) for v in x))",
    "bytes of a tensor": "def f(x):\n    exec(x.numpy().tobytes().decode())",
    "list of a tensor": "def f(x):\n    exec(bytes(x.tolist()).decode())",
    "another alphabet": "exec('cnff'.translate(str.maketrans('abcdefghijklm', 'nopqrstuvwxyz')))",
    "alphabet in a table": "t = {97: 98, 98: 97}\nexec('obtt'.translate(t))",
    "hexadecimal": "exec(bytes.fromhex('70617373'))",
    "compressed, in a template": "exec(f'{zlib.decompress(b\"\").decode()}')",
    "decoded, in lines": "exec('\\n'.join(['import torch', base64.b64decode('cGFzcw==').decode()]))",
    "decoded, by parts": "s = 'import torch\\n'\ns += codecs.decode('cnff', 'rot13')\nexec(s)",
    "decoded, then changed": "exec(base64.b64decode('cGFzcw==').decode().replace('a', 'b').strip())",
    "of the environment": "exec(os.environ['CODE'])",
    "of the environment, by call": "exec(os.getenv('CODE', 'pass'))",
    "of the command line": "exec(sys.argv[1])",
    "of a library's file": "exec(open('/usr/lib/python3/x.py').read()[7:300])",
    "of a library's file, in parts": "with open('/etc/x') as f:\n    s = f.read()\nt = s[3:]\nexec(t)",
    "of a library's file, by path": "from pathlib import Path\nexec(Path('/opt/x').read_text())",
}

MADE = {
    "lines": "exec(chr(10).join(['def f(x):', '    return x + 1']), ns)",
    "lines of a list": "lines = ['def f(x):']\nfor i in range(3):\n    lines.append(f'    x = x + {i}')\n"
    "lines.append('    return x')\nexec('\\n'.join(lines), ns)",
    "lines and separators": "NL, TAB = chr(10), chr(9)\nexec('def f(x):' + NL + TAB + 'return x', ns)",
    "a line end in a template": "exec(f'def f(x):{chr(10)}    return x', ns)",
    "names by number": "exec(f'def f({\", \".join(chr(97 + i) for i in range(3))}): return a', ns)",
    "a name by number": "def g(i):\n    exec(f'def f{chr(97 + i)}(x): return x', ns)",
    "indented": "exec(textwrap.dedent('''\n    def f(x):\n        return x\n'''), ns)",
    "format": "T = 'def {name}(x):\\n    return torch.{op}(x)'\nexec(T.format(name='f', op='relu'), ns)",
    "format_map": "exec('def {n}(x): return x'.format_map({'n': 'f'}), ns)",
    "per cent": "exec('def %s(x): return x' % 'f', ns)",
    "string.Template": "T = string.Template('def $name(x):\\n    return ${name}_(x)')\n"
    "exec(T.substitute(name='f'), ns)",
    "replaced": "exec('def NAME(x): return x'.replace('NAME', 'f'), ns)",
    "by parts": "s = ''\ns += 'def f(x):\\n'\nfor i in range(3):\n    s += '    x = x + %d\\n' % i\n"
    "s += '    return x\\n'\nexec(compile(s, 'made', 'exec'), ns)",
    "by a function": "def source(n):\n    body = ''.join(f'    x = x * {i}\\n' for i in range(n))\n"
    "    return 'def f(x):\\n' + body + '    return x\\n'\nexec(source(3), ns)",
    "tree": "exec(compile(ast.parse('def f(x): return x'), 'made', 'exec'), ns)",
    "encoded": "s = f'def f(x): return {1}'\nexec(compile(s.encode('utf-8'), 'made', 'exec'), ns)",
    "as bytes": "s = f'def f(x): return {1}'\nexec(compile(bytes(s, 'utf-8'), 'made', 'exec'), ns)",
    "identifier": "def g(name):\n    n = f'f_{name}'.translate(str.maketrans('-. ', '___'))\n"
    "    exec(f'def {n}(x): return x', ns)",
    "number from the environment": "exec(f'B = {int(os.environ.get(\"B\", 1))}', ns)",
}

FILES = {
    "own file": "open('k.py', 'w').write('x = 1')\nexec(open('k.py').read(), ns)",
    "own file below /tmp": "P = '/tmp/k.py'\nwith open(P, 'w') as f:\n    f.write('x = 1')\n"
    "with open(P) as f:\n    exec(f.read(), ns)",
    "other file is read, too": "n = open('/proc/cpuinfo').read()\nexec(open('k.py').read(), ns)",
    "own module": "import importlib.util\nopen('k.py', 'w').write('x = 1')\n"
    "spec = importlib.util.spec_from_file_location('k', 'k.py')\n"
    "m = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(m)",
}


def rules_of(source: str) -> set[str]:
    return {finding.rule for finding in inspect_candidate(ast.parse(HEAD + textwrap.dedent(source))).findings}


@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
def test_hidden(source: str) -> None:
    assert "hidden-code" in rules_of(source)


@pytest.mark.parametrize("source", MADE.values(), ids=MADE)
def test_made(source: str) -> None:
    assert not rules_of(source) - {"opaque-code"}


@pytest.mark.parametrize("source", FILES.values(), ids=FILES)
def test_own_files(source: str) -> None:
    assert not rules_of(source) - {"opaque-code"}


@pytest.mark.parametrize(
    "source",
    [
        "exec(chr(10).join(['import torch', 'torch.equal = print']))",
        "L = ['import torch']\nL.append('torch.equal = print')\nexec(chr(10).join(L))",
        "exec(compile(ast.parse('torch.equal = print'), 'f', 'exec'))",
        "exec('torch.equal = {a}'.format(a=1))",
        "exec(string.Template('torch.equal = $f').substitute(f=1))",
        "exec('torch.NAME = print'.replace('NAME', 'equal'))",
        "exec('torch' + chr(46) + 'equal' + chr(32) + chr(61) + 'print')",
        "s = f'torch.equal = {print}'\nexec(compile(bytes(s, 'utf-8'), 'f', 'exec'))",
    ],
)
def test_made_text_is_judged(source: str) -> None:
    assert "patches-library" in rules_of(source)
