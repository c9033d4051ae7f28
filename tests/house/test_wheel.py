"""What is published works where nothing else is: built from the tree, installed into an empty environment, used."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import mqtool
from mqtool import native
from mqtool.repair.runbooks import RUNBOOKS
from tests.house.modules import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("wheel")]
STORE = str(ROOT / "fixtures" / "orders-5.5.0" / "store")


def clean_environment() -> dict[str, str]:
    """The environment without anything that leads to this tree or to the interpreter that runs the tests.

    What the C compiler makes is not optimised, which takes a third of the time.
    """
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHON")
    return {name: value for name, value in os.environ.items() if name not in dropped} | {"CFLAGS": "-O0"}


def run(*command: str | Path, cwd: Path) -> str:
    arguments = [str(word) for word in command]
    result = subprocess.run(
        arguments,
        cwd=cwd,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{arguments}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
    return result.stdout


def install(programs: Path, *words: str | Path, cwd: Path, compiler: str = "cc") -> None:
    """Installs into the environment of these programs, as `./setup` does: with uv, or with pip where there is no uv."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    command = [uv, "pip", "install"] if uv else [sys.executable, "-m", "pip", "install"]
    run("env", f"CC={compiler}", "UV_SYSTEM_CERTS=1", *command, "--python", programs / "python", *words, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """`python -m build`: the sdist, and the wheel that is made of it and nothing else."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    [found] = target.glob("*.whl")
    assert {path.name for path in target.iterdir()} == {found.name, f"rocketmq_mqtool-{mqtool.__version__}.tar.gz"}
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The directory of programs of an environment that has the wheel and what it requires."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory / "env", with_pip=False)
    programs = directory / "env" / "bin"
    install(programs, wheel, cwd=directory)
    return programs


def test_tests_of_one_group_run_in_one_worker(request):
    """Else each worker would build the wheel, start Spark and fill the site by itself."""
    assert "PYTEST_XDIST_WORKER" not in os.environ or request.node.nodeid.endswith("@wheel")


def test_the_wheel_holds_the_package_and_its_pages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    information = f"rocketmq_mqtool-{mqtool.__version__}.dist-info/"
    assert [name for name in names if not name.startswith(("mqtool/", information))] == []
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "mqtool", "docs"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    package = {name for name in files if name.startswith("mqtool/") and (ROOT / name).exists()}
    pages = {f"mqtool/{name}" for name in files if name.endswith(".md") and (ROOT / name).exists()}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compiled = {f"mqtool/native/{name}{suffix}" for name in native.MODULES}
    assert {name for name in names if name.startswith("mqtool/")} == package | pages | compiled


def test_the_name_of_the_distribution_is_its_own_and_the_command_is_mqtool():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "rocketmq-mqtool"
    assert list(project["scripts"]) == ["mqtool"]


def test_the_installed_program_works_away_from_the_tree(installed, tmp_path):
    program = installed / "mqtool"
    assert run(program, "--version", cwd=tmp_path).startswith(f"mqtool {mqtool.__version__}\n")
    assert json.loads(run(program, "info", STORE, "--format", "json", cwd=tmp_path))["ok"] is True
    assert run(program, "verify", STORE, cwd=tmp_path).startswith(f"{STORE}: clean")
    assert run(program, "help", "exit-codes", cwd=tmp_path).startswith("# ")
    assert run(program, "runbook", "list", cwd=tmp_path).count("RB-") == len(RUNBOOKS)
    run(program, "export", STORE, "--output", "lake", cwd=tmp_path)
    run(program, "report", STORE, "--output", "report.html", cwd=tmp_path)
    assert (tmp_path / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    where = run(installed / "python", "-c", "import mqtool; print(mqtool.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)


@pytest.mark.parametrize(
    "words",
    [
        ("info", STORE),
        ("runbook", "show", "RB-05"),
        ("help", "runbooks/RB-05"),
        ("help", "log-missing"),
        ("help", "configuration"),
    ],
    ids=" ".join,
)
def test_it_works_from_a_zip_file_too(words, wheel, tmp_path):
    """Spark ships it to executors like this."""
    program = ("env", f"PYTHONPATH={wheel}", sys.executable, "-P", "-m", "mqtool")
    here = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "mqtool")
    assert run(*program, *words, cwd=tmp_path) == run(*here, *words, cwd=tmp_path)


def test_the_installed_program_uses_the_compiled_rules(installed, tmp_path):
    assert "native compiled" in run(installed / "mqtool", "--version", cwd=tmp_path).splitlines()


def test_without_a_compiler_it_installs_and_gives_the_same_answers(installed, tmp_path):
    """What the package requires comes from the other environment; the package itself must not."""
    venv.create(tmp_path / "env", with_pip=False)
    programs = tmp_path / "env" / "bin"
    [required], [own] = (env.glob("lib/python*/site-packages") for env in (installed.parent, tmp_path / "env"))
    (own / "required.pth").write_text(f"{required}\n")
    copy = tmp_path / "tree"
    files = (
        subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    )
    for name in files:
        if name.startswith(("mqtool/", "docs/")) or name in {
            "pyproject.toml",
            "setup.py",
            "MANIFEST.in",
            "README.md",
            "LICENSE",
        }:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    install(programs, "--no-deps", copy, cwd=tmp_path, compiler="false")
    assert "native not compiled" in run(programs / "mqtool", "--version", cwd=tmp_path).splitlines()
    answers = [
        json.loads(run(program / "mqtool", "verify", STORE, "--format", "json", cwd=tmp_path))
        for program in (installed, programs)
    ]
    assert all(answer.pop("seconds") > 0 for answer in answers)
    assert answers[0] == answers[1]
