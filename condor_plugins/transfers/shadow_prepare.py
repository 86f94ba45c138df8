"""HTCondor's SHADOW_PREPARE_JOB hook: ``python -I -S shadow_prepare.py --config FILE``.

The shadow starts it as the job's owner before a job's input is sent, with the job's ad on standard
input, and adds what it prints to its own copy of the ad. It always exits 0: any other code would
hold the job or start it over. Jobs that move nothing leave before anything of the broker's is
imported. Printed, and so in HTCondor's event log, where the watcher reads it:

    AdonInState   state of the transit, "unasked" (no broker answered) or "none" (no need)
    AdonInReason  as text
    AdonInId      of the transit
    AdonInBytes   what will be sent, where that is known
    AdonInTold    whether the broker knows all this
    AdonUrlPaths  the paths for what the slot fetches by URL (condor_plugins.urls.sources)

and for plug-ins that fetch it, of the fastest of these paths, what is known:

    AdonStreams, AdonRateBps, AdonRttSeconds

Files that several jobs of a machine share have a shadow of their own (HTCondor 25), whose ad lacks
what was noted of the slot: the collector is asked for the machine's site, which is printed as
HTCondor would have noted it.
"""

import sys

_GONE_MS = 0
# The shadow gives a hook 120 s (ADON_HOOK_SHADOW_PREPARE_JOB_TIMEOUT), then starts the job over.
MOST_PATIENCE_S = 90.0
_COLLECTOR_S = 5.0


def main(argv: list[str]) -> int:
    """Run the hook. ``argv`` without the program's name."""
    sys.path.insert(0, __file__.rsplit("/", 3)[0])
    try:
        attributes = prepare(argv, sys.stdin.buffer.read().decode(errors="replace"))
    except Exception as error:  # the hook's promise: no failure of ours touches a job
        attributes = {"AdonInState": "unasked", "AdonInReason": f"best effort: {_described(error)}"}
        attributes |= {"AdonInTold": False}
    from condor_plugins.jobs.jobad import line  # noqa: PLC0415

    sys.stdout.write("".join(line(name, value) for name, value in attributes.items()))
    return 0


def prepare(argv: list[str], text: str) -> "dict[str, str | int | float | bool]":
    """What must be printed for the job whose ad is ``text``. Raises AdonError and OSError."""
    from condor_plugins.jobs.jobad import (  # noqa: PLC0415
        bytes_sent,
        is_common,
        no_transfer,
        parse,
        urls,
    )

    ad = parse(text.splitlines())
    if why := no_transfer(ad):
        return {"AdonInState": "none", "AdonInReason": why}
    size, input_urls = bytes_sent(ad), urls(ad)
    if size == 0 and not input_urls:
        return {"AdonInState": "none", "AdonInReason": "the job has no input"}
    known: dict[str, str | int | float | bool] = {} if size is None else {"AdonInBytes": size}
    if is_common(ad):
        known |= _machine(ad)
    return known | _sent(argv, ad | known, size, input_urls)


def _machine(ad: "dict[str, str | int | float | bool]") -> "dict[str, str | int | float | bool]":
    """The site of the machine that common files are sent to, {} if unknown."""
    import subprocess  # noqa: PLC0415

    from condor_plugins.jobs.jobad import text  # noqa: PLC0415

    host = text(ad, "RemoteHost").rpartition("@")[2]
    site_named = "(AdonSite ?: PegasusSite)"
    where = f'Machine == "{host}" && {site_named} isnt undefined'
    command = ["condor_status", "-limit", "1", "-constraint", where, "-af", site_named]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COLLECTOR_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    site = done.stdout.strip() if done.returncode == 0 else ""
    return {"MachineAttrAdonSite0": site} if site else {}


def _sent(
    argv: list[str],
    ad: "dict[str, str | int | float | bool]",
    size: int | None,
    elsewhere: list[str],
) -> "dict[str, str | int | float | bool]":
    import os  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from condor_plugins.jobs import request_builder  # noqa: PLC0415
    from condor_plugins.jobs.sites import site_of_match  # noqa: PLC0415
    from network_provisioner.base.errors import InputError  # noqa: PLC0415
    from network_provisioner.client import hookconfig  # noqa: PLC0415
    from network_provisioner.client.path_requests import Effects, Patience, ask  # noqa: PLC0415
    from network_provisioner.client.patience import Budget  # noqa: PLC0415

    if len(argv) != 2 or argv[0] != "--config":
        raise InputError(f"found arguments {argv}, expected --config FILE")
    config = hookconfig.load(Path(argv[1]))
    run = request_builder.run_of(ad)
    if run is None or not config.site:
        lacking = "GlobalJobId and NumShadowStarts" if run is None else "'site'"
        where = "the job's ad" if run is None else argv[1]
        raise InputError(f"{where}: found no {lacking}")
    if elsewhere:
        from condor_plugins.urls import sizes, sources  # noqa: PLC0415
    requests, reasons = [], list[str]()
    paths: list[sources.UrlPath] = []
    if size == 0:
        reasons.append("the access point sends no input")
    elif why := request_builder.missing_site_reason(ad, config.site):
        reasons.append(f"best effort: {why}")
    else:
        requests.append(request_builder.request(ad, run, "in", size, config))
    own = len(requests)
    if elsewhere and (slot := site_of_match(ad)):
        known = sizes.facts(ad, elsewhere, config)
        paths, unknown = sources.url_paths(elsewhere, known.sizes, known.cache_urls, run, config)
        paths = [path for path in paths if path.site != slot]
        requests += [sources.url_request(ad, run, path, config) for path in paths]
        reasons += [f"best effort: {unknown}"] if unknown else []
    if not requests:
        return {"AdonInState": "none", "AdonInReason": "; ".join(reasons)}
    from network_provisioner.client.hookclient import client_of, expand_by_user  # noqa: PLC0415

    broker = client_of(config, os.environ, expand=expand_by_user)
    effects = Effects(broker, Budget(config.timeout_s), cancelled=_shadow_gone)
    # HTCondor cannot be told to come again later, as DAGMan can: who would defer waits.
    patience = Patience(config.patience_s, most_s=MOST_PATIENCE_S)
    outcomes = ask(requests, patience, effects)
    answers = outcomes.answers
    reasons += [f"from {p.site}: {a.reason}" for p, a in zip(paths, answers[own:], strict=True)]
    attributes: dict[str, str | int | float | bool] = {
        "AdonInState": answers[0].state if own else "none",
        "AdonInReason": "; ".join([a.reason for a in answers[:own]] + reasons),
        "AdonInTold": all(answer.told for answer in answers),
    }
    if own:
        attributes["AdonInId"] = answers[0].id
    if paths:
        attributes |= sources.hook_attributes(paths, answers[own:], outcomes.services[own:])
    return attributes


def _shadow_gone() -> str:
    """Why the wait is over: the shadow, which reads what we print, has ended."""
    import select  # noqa: PLC0415

    poll = select.poll()
    poll.register(1, select.POLLERR)
    gone = poll.poll(_GONE_MS)
    return "the shadow ended before its job's input was sent" if gone else ""


def _described(error: Exception) -> str:
    from network_provisioner.base.errors import AdonError  # noqa: PLC0415

    known = isinstance(error, AdonError | OSError)
    return str(error) if known else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
