"""`nodevet completion`: the script that lets a shell complete nodevet's command lines."""

import click

from nodevet.cli.help import Command


@click.command(
    "completion",
    cls=Command,
    group="Tools",
    examples=(
        (
            "Bash: for this shell, or for every one",
            'eval "$(nodevet completion bash)"\n'
            "nodevet completion bash > ~/.local/share/bash-completion/completions/nodevet",
        ),
        ("Zsh: in a folder of $fpath", "nodevet completion zsh > ~/.zfunc/_nodevet"),
        ("Fish", "nodevet completion fish > ~/.config/fish/completions/nodevet.fish"),
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes command lines in a shell.

    It completes commands, options, checks, fixes, baselines, formats, plans and runs. It completes
    hosts and groups if the line names an inventory (YAML or JSON) with -i before them.
    """
    from nodevet.cli.completing import script

    click.echo(script(shell, context.find_root().command), nl=False)
