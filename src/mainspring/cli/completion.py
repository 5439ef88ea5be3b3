"""`mainspring completion`: let a shell complete verbs and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

SHELLS: Final = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete the verbs and options of mainspring.

    \b
    Examples:
      eval "$(mainspring completion bash)"      # in ~/.bashrc
      eval "$(mainspring completion zsh)"       # in ~/.zshrc
      mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    from mainspring.cli import main  # it imports this module when the verb is called

    kind = get_completion_class(shell)
    assert kind is not None  # the choices are click's shells
    click.echo(kind(main, {}, "mainspring", "_MAINSPRING_COMPLETE").source())
