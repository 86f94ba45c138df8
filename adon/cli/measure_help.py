"""What the verbs of ``adon measure`` say of themselves."""

LIST = """List what is measured regularly.

When each task is measured next, and how many of its runs were done, failed or missed.
"""
LIST_MORE = """
Examples:
  adon measure list
  adon measure list --broker https://broker.example:8470 --json
"""
SCHEDULE = """Show the runs that come next and those just made.

And how much of its time each host and link is used by measurements. Times of day are UTC.
"""
SCHEDULE_MORE = """
Examples:
  adon measure schedule
  adon measure schedule --task mu-tacc --for '2 h'
"""
AGENTS = """List the agents.

Which are there, when others were seen last, and how right their clocks are.
"""
AGENTS_MORE = """
Examples:
  adon measure agents
  adon measure agents --json
"""
RUN = """Measure now: a task's measurement once more, or one that no task has.

The broker squeezes it in where it disturbs no other measurement, and the command waits for what
comes of it.
"""
RUN_MORE = """
Examples:
  adon measure run mu-tacc-tcp
  adon measure run --tool echo --from mu --to tacc --for '5 s'
  adon measure run --tool tcp --from mu --to tacc --set streams=4 --set rate='200 Mb/s'

Exit codes: 0 measured; 1 nothing was measured; 2 the broker refuses, or cannot be asked.
"""
ADD = """Measure something regularly from now on, or change what was added so.

No other measurement moves as long as the new one fits between them; where it cannot fit at all,
nothing changes.
"""
ADD_MORE = """
Examples:
  adon measure add mu-tacc --tool tcp --from mu --to tacc --every '1 h' --for '10 s'
  adon measure add mu-load --tool host --from mu --every '1 min'
"""
REMOVE = """Measure it no longer. What was measured stays in the archive."""
REMOVE_MORE = """
Examples:
  adon measure remove mu-tacc
"""
WHO = """Say who may start measurements between two sites, and who may see the results.

The thesis's two questions (chapter 4). Asks the broker, or with --config reads adon.yml; a broker
tells researchers of themselves alone.
"""
WHO_MORE = """
Examples:
  adon measure who --from mu --to tacc
  adon measure who --from mu --to tacc --metric tcp_throughput --config adon.yml
"""
