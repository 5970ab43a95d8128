"""An agent: a function that gets a child, and returns text."""

from pisub import Child, Question


async def namer(child: Child) -> str:
    """Think of names, ask which one it shall be and why, and write it down."""
    with child.tool("think", about=child.task):
        ideas = ["otter", "heron", "vole"]
    answers = await child.ask([Question("Which name?", options=ideas), Question("Why?")], why="to choose a name")
    if not answers.is_ok:
        return f"No name yet: {answers.status}"
    child.write("name.txt", f"{answers[0]}\n")
    return f"{answers[0]}, because {answers[1]}"
