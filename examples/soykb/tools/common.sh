# Shared by the programs of this directory, which each workflow job runs; not a program itself.
# Jobs run in a site's scratch directory, where all their files lie by logical name.

die() { # status, words of one line
    status=$1
    shift
    echo "${0##*/}: $*" >&2
    exit "$status"
}

# usage N "what is expected" "$@": at least N arguments, or the job was planned wrongly
usage() {
    least=$1 expected=$2
    shift 2
    [ $# -ge "$least" ] || die 2 "found $# arguments, expected: $expected"
}

# needs PROGRAM...: the site's PATH has to lead to each
needs() {
    for program; do
        command -v "$program" >/dev/null ||
            die 127 "$program is not on PATH; expected it in the PATH profile of this site"
    done
}

# inputs FILE...: each is here and not empty
inputs() {
    for file; do
        [ -s "$file" ] || die 66 "input $file is missing or empty in $PWD"
    done
}

# merged_gvcf REFERENCE OUT GVCF...: the gVCFs of all samples over one chromosome side by side
merged_gvcf() {
    local reference=$1 out=$2
    shift 2
    if [ $# -eq 1 ]; then # bcftools merge refuses a single sample
        bcftools view --no-version -Ou -o "$out" "$1"
    else
        bcftools merge --no-version -g "$reference" -Ou -o "$out" "$@"
    fi
}
