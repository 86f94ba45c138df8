pegasus-transfer --threads 1  1>&2 << 'eof'
[
 { "type": "transfer",
   "linkage": "input",
   "lfn": "raw.txt",
   "id": 1,
   "src_urls": [
     { "site_label": "local", "url": "file:///home/ada/plain/local/scratch/adon/pegasus/mini/run0001/00/00/raw.txt", "checkpoint": "false" }
   ],
   "dest_urls": [
     { "site_label": "mu", "url": "file://$PWD/raw.txt" }
   ] }
]
eof

printf "\n##################### Checking file integrity for input files #####################\n"  1>&2
# do file integrity checks
pegasus-integrity --print-timings --verify=stdin 1>&2 << 'eof'
raw.txt
eof

pegasus_lite_section_end stage_in
set +e
job_ec=0
pegasus_lite_section_start task_execute
printf "\n######################[Pegasus Lite] Executing the user task ######################\n"  1>&2
pegasus-kickstart  -n t::split:1.0 -N ID1 -R mu  -s a.txt=a.txt -s b.txt=b.txt -L mini -T 2026-11-22T20:20:39+00:00 /home/ada/plain/bin/split raw.txt b.txt
job_ec=$?
pegasus_lite_section_end task_execute
set -e
pegasus_lite_section_start stage_out
printf "\n############################ Staging out output files ############################\n"  1>&2
# stage out
pegasus-transfer --threads 1  1>&2 << 'eof'
[
 { "type": "transfer",
   "linkage": "output",
   "lfn": "a.txt",
   "id": 1,
   "src_urls": [
     { "site_label": "mu", "url": "file://$PWD/a.txt", "checkpoint": "false" }
   ],
   "dest_urls": [
     { "site_label": "local", "url": "file:///home/ada/plain/local/scratch/adon/pegasus/mini/run0001/00/00/a.txt" }
   ] }
 ,
 { "type": "transfer",
   "linkage": "output",
   "lfn": "b.txt",
   "id": 2,
   "src_urls": [
     { "site_label": "mu", "url": "file://$PWD/b.txt", "checkpoint": "false" }
   ],
   "dest_urls": [
     { "site_label": "local", "url": "file:///home/ada/plain/local/scratch/adon/pegasus/mini/run0001/00/00/b.txt" }
   ] }
]
eof

pegasus_lite_section_end stage_out

