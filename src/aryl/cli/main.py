"""The entry of the command line: the commands, and what an error looks like from outside.

An error that Aryl raises on purpose is one line on stderr and an exit code; a traceback means a defect.
Commands import what they need when they run, so that `aryl --help` and completion answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from aryl.cli.compare import COMPARE_EPILOG, compare
from aryl.cli.demo import demo
from aryl.cli.forecast import forecast_app
from aryl.cli.job import job_app
from aryl.cli.loan import loan_app
from aryl.cli.policy import policy_app
from aryl.cli.serve import SERVE_EPILOG, serve
from aryl.cli.server import server_app
from aryl.cli.simulate import simulate
from aryl.cli.submit import SUBMIT_EPILOG, submit
from aryl.cli.token import token_app
from aryl.cli.trace import trace_app
from aryl.cli.why import WHY_EPILOG, why
from aryl.errors import ArylError

INTERRUPTED = 130
TERMINATED = 143

app = typer.Typer(
    name="aryl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Lends idle inference GPU servers to training, takes them back in time, and resizes elastic jobs.",
)
app.command("demo")(demo)
app.command("simulate")(simulate)
app.command("compare", epilog=COMPARE_EPILOG)(compare)
app.command("serve", epilog=SERVE_EPILOG)(serve)
app.command("submit", epilog=SUBMIT_EPILOG)(submit)
app.command("why", epilog=WHY_EPILOG)(why)
app.add_typer(job_app, name="job")
app.add_typer(server_app, name="server")
app.add_typer(loan_app, name="loan")
app.add_typer(token_app, name="token")
app.add_typer(trace_app, name="trace")
app.add_typer(forecast_app, name="forecast")
app.add_typer(policy_app, name="policy")


def _show_version(wanted: bool) -> None:
    if wanted:
        from aryl import __version__

        print(f"aryl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Lends idle inference GPU servers to training, takes them back in time, and resizes elastic jobs."""


def main() -> NoReturn:
    """Run the command line and exit."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(run_command())


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line, `sys.argv` by default, and return its exit code."""
    try:
        try:
            typer.main.get_command(app)(args=arguments, prog_name="aryl")
        finally:
            sys.stdout.flush()
    except ArylError as error:
        # One without words says only how the command ends.
        if str(error):
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        # A full disk or a missing permission is the machine's word and no defect.
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return ArylError.exit_code
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        return _interrupted() if code == INTERRUPTED else code
    return 0


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def _terminated(_signal: int, _frame: object) -> NoReturn:
    # As an exception, so that unfinished files are removed on the way out.
    sys.exit(TERMINATED)
