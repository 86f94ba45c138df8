"""The XML document of kickstart before Pegasus 5: the same as its YAML, in other words.

<invocation start="2012-08-28T00:55:14.798-04:00" duration="3039.014" transformation="t::x:1.0"
    derivation="ID1" hostname="n1" …>
  <mainjob start="2012-08-28T00:55:15.013-04:00" duration="3038.799" pid="32227">
    <usage utime="8.321" stime="2.112" …/>
    <status raw="0"><regular exitcode="0"/></status>
  </mainjob>
  <statcall error="0" id="final" lfn="f.b"> … <statinfo mode="0100644" size="77" …/></statcall>
  <statcall error="0" id="stderr"> … <data>no such file</data></statcall>
</invocation>
"""

from __future__ import annotations

import html
import re

_ATTRIBUTE = re.compile(r"([\w-]+)=\"([^\"]*)\"")
_PART = re.compile(r"<(prejob|mainjob|postjob)\s([^>]*)>(.*?)</\1>", re.DOTALL)
_STATUS = re.compile(r"<status raw=\"(-?\d+)\"")
_CPU = re.compile(r"<usage utime=\"([\d.]+)\" stime=\"([\d.]+)\"")
_NODE = re.compile(r"<uname\s[^>]*nodename=\"([^\"]*)\"")
_FILE = re.compile(r"<statcall\s([^>]*)>(.*?)</statcall>", re.DOTALL)
_SIZE = re.compile(r"<statinfo\s[^>]*\bsize=\"(\d+)\"")
_DATA = re.compile(r"<data[^>]*>(?:<!\[CDATA\[)?(.*?)(?:\]\]>)?</data>", re.DOTALL)

Attributes = dict[str, str]
Sizes = dict[str, int]


def read(
    text: str,
) -> tuple[Attributes, Attributes, dict[str, int], re.Match[str] | None, tuple[Sizes, Sizes], str]:
    """Of a document: its attributes and those of the main job, the raw status of each part that
    ran, seconds of processors as user and system, sizes of inputs and outputs, standard error."""
    text = text.partition("</invocation>")[0]
    head = dict(_ATTRIBUTE.findall(text.partition(">")[0]))
    if not head.get("hostname") and (node := _NODE.search(text)):
        head["hostname"] = node[1]
    main, statuses, cpu = {}, {}, None
    for name, attributes, body in _PART.findall(text):
        if status := _STATUS.search(body):
            statuses[name] = int(status[1])
        if name == "mainjob":
            main, cpu = dict(_ATTRIBUTE.findall(attributes)), _CPU.search(body)
    sizes: dict[str, Sizes] = {"initial": {}, "final": {}}
    stderr = ""
    for attributes, body in _FILE.findall(text):
        about, size = dict(_ATTRIBUTE.findall(attributes)), _SIZE.search(body)
        if about.get("id") == "stderr" and (data := _DATA.search(body)):
            stderr = html.unescape(data[1])
        elif about.get("id") in sizes and about.get("lfn") and size:
            sizes[about["id"]][html.unescape(about["lfn"])] = int(size[1])
    return head, main, statuses, cpu, (sizes["initial"], sizes["final"]), stderr
