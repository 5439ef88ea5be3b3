"""A group of verbs that tolerates a missing or misspelt verb."""

from __future__ import annotations

from typing import Any, Final

import click

__all__ = ["VerbGroup"]


LONGEST_SENTENCE_CHARS: Final = 200


class VerbGroup(click.Group):
    """A group that answers an unknown verb with similar ones, and uses `list` for options without a verb."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole first sentence of each verb: click would cut it at the end of the line."""
        with formatter.section("Commands"):
            about = [(verb, self.commands[verb].get_short_help_str(LONGEST_SENTENCE_CHARS)) for verb in self.commands]
            formatter.write_dl(sorted(about))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names and "list" in self.commands:
            args.insert(0, "list")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        verbs = self.list_commands(ctx)
        if args and args[0] not in verbs:
            from mainspring.errors import near  # slow to import, and rarely needed

            ctx.fail(f"no verb {args[0]!r}{near(args[0], verbs)}")
        return super().resolve_command(ctx, args)
