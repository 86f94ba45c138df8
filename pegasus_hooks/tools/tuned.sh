# What every program in bin/ does: find the one it is named after on the rest of PATH, put what the
# transfer is tuned with into its arguments, and become it. Without ADON_STREAMS,
# ADON_BUFFER_BYTES and ADON_THREADS the arguments stay as they are, without ADON_PORTS its ports.
#
#   globus-url-copy       -parallel N (only where it is there: pegasus-transfer leaves it out for
#                         transfers to or from a file, whose data the server would have to connect
#                         for), -tcp-bs BYTES
#   iget, iput, irsync    -N N
#
# Where iCommands are missing, iget, iput and iinit are ADON's own; PRE says by which Python.
#
# There is none for gfal-copy: pegasus-transfer takes any program of that name for a sign that it can
# do without globus-url-copy.

name=${0##*/}
here=${0%/*}
here=$(CDPATH='' cd -- "$here" && pwd -P) || exit 127

real=
rest=$PATH:
while test -n "$rest"; do
    folder=${rest%%:*}
    rest=${rest#*:}
    test -n "$folder" || folder=.
    test -f "$folder/$name" && test -x "$folder/$name" || continue
    test "$(CDPATH='' cd -- "$folder" && pwd -P)" = "$here" && continue
    real=$folder/$name
    break
done
case $name in iget | iput | iinit) ours=$ADON_PYTHON ;; *) ours= ;; esac
if test -z "$real$ours"; then
    echo "$name: not found on PATH behind $here" >&2
    exit 127
fi

case $name in
    globus-url-copy) count=-parallel alias=-p value=$ADON_STREAMS size=-tcp-bs add= ;;
    iinit) count= alias= value= size= add= ;;
    *) count=-N alias=-N value=$ADON_THREADS size= add=yes ;;
esac
test -n "$size" && bytes=$ADON_BUFFER_BYTES || bytes=
# A question after its version, which pegasus-transfer asks first, is passed on as it is.
case $#:${1-} in 0:* | 1:-*) value= bytes= ;; esac
become() {
    test -z "$real" || exec "$real" "$@"
    exec "$ours" -I "$here/../../../condor_plugins/irods/icommands.py" "$name" "$@"
}
test -n "$value$bytes$ADON_PORTS" || become "$@"

# Ports of its own tell the transfer from others on the switches. They are 256 that begin at such a
# number; a port that was used is not free for a minute, and without a free one nothing would move.
if test -n "$ADON_PORTS" && test "$name" = globus-url-copy &&
    test -z "$GLOBUS_TCP_PORT_RANGE$GLOBUS_TCP_SOURCE_RANGE"; then
    block=$(printf '%02X' $((${ADON_PORTS%%,*} / 256)))
    used=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -c "^ *[0-9]*: [0-9A-F]*:$block")
    if test "$used" -lt 128; then
        export GLOBUS_TCP_PORT_RANGE="$ADON_PORTS" GLOBUS_TCP_SOURCE_RANGE="$ADON_PORTS"
    fi
fi

left=$#
found=
while test "$left" -gt 0; do
    word=$1
    shift
    left=$((left - 1))
    if test -n "$value" && { test "$word" = "$count" || test "$word" = "$alias"; } &&
        test "$left" -gt 0; then
        shift
        left=$((left - 1))
        set -- "$@" "$word" "$value"
        found=yes
    else
        set -- "$@" "$word"
    fi
done
test -n "$value" && test -z "$found" && test -n "$add" && set -- "$count" "$value" "$@"
test -n "$bytes" && set -- "$size" "$bytes" "$@"
become "$@"
