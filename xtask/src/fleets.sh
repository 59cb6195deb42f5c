# Tries docs/guides/remote.md and docs/fleets.md with stores and engines of other projects.
# $1: restow, $2: an empty folder. Each check prints a line: ok, FAILED or SKIPPED, and words.
set -u
restow=$1
cd "$2" || exit 1
PATH=$(dirname "$restow"):$PATH
python=${RESTOW_PYTHON:-python3}
# A substitution would not know the jobs of this shell.
servers=
trap 'kill $servers 2> /dev/null' EXIT
trap 'exit 1' TERM INT

ok() { echo "ok $*"; }
failed() { echo "FAILED $*"; }
skipped() { echo "SKIPPED $*"; }

# Words, the exit code that is expected, and a command.
expect() {
    words=$1 wanted=$2
    shift 2
    "$@" > said 2>&1
    code=$?
    if [ $code = "$wanted" ]; then ok "$words"; else failed "$words: exit code $code, $(tail -n 1 said)"; fi
}

# Repeats a command while that may help.
retried() {
    for _ in 1 2 3 4 5; do
        "$@"
        code=$?
        [ $code = 75 ] || return $code
    done
    return 75
}

same() { if cmp -s "$2" "$3"; then ok "$1"; else failed "$1: other bytes"; fi; }

# Waits until a server answers.
answers() {
    for _ in $(seq 200); do
        curl --silent --output answer "http://127.0.0.1:$1/" && return 0
        sleep 0.1
    done
    return 1
}

for port in 7391 7392 7393; do
    if curl --silent --output answer "http://127.0.0.1:$port/"; then
        failed "port $port has a server already"
        exit 0
    fi
done
mkdir tree files
for n in 1 2 3 4; do head -c 4000000 /dev/urandom > tree/noise$n; done
seq 400000 > tree/numbers
for n in $(seq 800); do head -c 1900 /dev/urandom > tree/small$n; done
cp tree/noise1 tree/again
head -c 20000000 /dev/urandom > tree/large

# The name of a store, the beginning of its addresses, and `no` if it ignores the condition of the
# last request.
store() {
    name=$1 at=$2 condition=$3
    for file in zstd.squashfs gzip.squashfs x.erofs dup.btrfs single.btrfs x.tar x.tar.zst x.stream; do
        set --
        case $file in
            gzip*) set -- --compress gzip ;;
            single*) set -- --metadata single --size 80M ;;
        esac
        [ -e "files/$file" ] || restow copy -q "$@" tree "files/$file"
        expect "$name: $file is written and read back" 0 restow copy -q --read-back "$@" tree "$at/$file"
        restow cat "$at/$file" noise1 > back 2> said
        case $file in *.stream) ;; *) same "$name: a file in $file" back tree/noise1 ;; esac
        fetched "$file"
        same "$name: $file is the local file" fetch "files/$file"
    done
    expect "$name: a name that is taken is refused" 2 restow copy -q tree "$at/x.tar"
    expect "$name: --overwrite" 0 restow copy -q --overwrite tree "$at/x.tar"
    expect "$name: --if-changed makes an object" 0 restow copy -q --if-changed tree "$at/changed.tar"
    expect "$name: --if-changed sends nothing" 0 restow copy -q --if-changed tree "$at/changed.tar"
    for n in 1 2 3 4 5 6 7 8; do
        timeout -s KILL "0.$((n * 11))" restow copy -q --resume tree "$at/killed$n.btrfs" > said 2>&1
        # The copy may have ended before.
        expect "$name: kill -9 and --resume, $n" 0 retried restow copy -q --resume --overwrite tree "$at/killed$n.btrfs"
        fetched "killed$n.btrfs"
        same "$name: the object after kill -9, $n" fetch files/dup.btrfs
    done
    for n in 1 2 3 4 5 6; do
        [ "$condition" = no ] && break
        restow copy -q tree "$at/two$n.squashfs" 2> /dev/null & one=$!
        restow copy -q --compress lz4 tree "$at/two$n.squashfs" 2> /dev/null
        codes=$?
        wait $one
        codes="$codes $?"
        case $codes in
            "0 2" | "2 0") ok "$name: of two writers one succeeds, $n" ;;
            *) failed "$name: two writers ended with $codes" ;;
        esac
    done
    for format in squashfs btrfs; do
        for n in 0 1 2 3; do
            expect "$name: part $n of 3, $format" 0 restow copy -q --to $format --part $n/3 tree "$at/$format/$n.part"
        done
        [ $format = btrfs ] && file=dup.btrfs || file=zstd.squashfs
        expect "$name: parts of $format are joined" 0 restow copy -q --parts "$at/$format/1.part" \
            --parts "$at/$format/2.part" --parts "$at/$format/3.part" tree "$at/joined.$format"
        fetched "joined.$format"
        same "$name: the joined $format" fetch "files/$file"
    done
}

s3() {
    export AWS_ENDPOINT_URL=http://127.0.0.1:$1 AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=secretsecret
    fetched() {
        $python -c "import boto3, sys; boto3.client('s3', region_name='us-east-1').download_file('images', sys.argv[1], 'fetch')" "$1"
    }
}

if $python -c 'import moto.server, boto3' 2> /dev/null; then
    $python -m moto.server -H 127.0.0.1 -p 7391 > moto.log 2>&1 &
    servers="$servers $!"
    answers 7391 || failed "moto does not answer"
    s3 7391
    $python -c "import boto3; boto3.client('s3', region_name='us-east-1').create_bucket(Bucket='images')"
    store moto s3://images no
else
    skipped "moto: pip install 'moto[server]' boto3"
fi
gateway=${RESTOW_VERSITYGW:-versitygw}
if command -v "$gateway" > /dev/null && $python -c 'import boto3' 2> /dev/null; then
    mkdir -p versity/images
    ROOT_ACCESS_KEY=me ROOT_SECRET_KEY=secretsecret "$gateway" --port 127.0.0.1:7392 posix versity > versity.log 2>&1 &
    servers="$servers $!"
    answers 7392 || failed "versitygw does not answer"
    s3 7392
    fetched() { rm -f fetch && ln "versity/images/$1" fetch; }
    store versitygw s3://images yes
else
    skipped "versitygw: RESTOW_VERSITYGW names it; pip install boto3"
fi
blob=${RESTOW_AZURITE:-azurite-blob}
if command -v "$blob" > /dev/null && $python -c 'import azure.storage.blob' 2> /dev/null; then
    # The account and the key that azurite documents.
    key=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
    export AZURE_STORAGE_CONNECTION_STRING="DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=$key;BlobEndpoint=http://127.0.0.1:7393/devstoreaccount1;"
    "$blob" --silent --skipApiVersionCheck --location azure --blobPort 7393 > azure.log 2>&1 &
    servers="$servers $!"
    answers 7393 || failed "azurite does not answer"
    client="import os, sys; from azure.storage.blob import BlobServiceClient as C; c = C.from_connection_string(os.environ['AZURE_STORAGE_CONNECTION_STRING'])"
    $python -c "$client; c.create_container('images')"
    fetched() { $python -c "$client; open('fetch', 'wb').write(c.get_blob_client('images', sys.argv[1]).download_blob().readall())" "$1"; }
    store azurite az://images yes
else
    skipped "azurite: RESTOW_AZURITE names azurite-blob; pip install azure-storage-blob"
fi

# The loop of docs/fleets.md for Dask, twice.
if [ -d versity ] && $python -c 'import dask.distributed' 2> /dev/null; then
    s3 7392
    for n in $(seq 40); do
        mkdir -p "many/$n"
        cp "tree/small$n" tree/numbers "many/$n"
        echo "many/$n s3://images/many/$n.squashfs"
    done > list
    cat > dask.task << 'END'
import subprocess, sys
from dask.distributed import Client
def convert(line):
    src, dst = line.split()
    command = ["restow", "copy", "-q", "-j", "2", "--if-changed", "--resume", src, dst]
    for _ in range(6):
        code = subprocess.run(command).returncode
        if code != 75:
            return code
    return code
client = Client(processes=False, n_workers=1, threads_per_worker=4, dashboard_address=None)
codes = client.gather(client.map(convert, open("list").read().splitlines()))
client.close()
sys.exit(max(codes))
END
    expect "Dask: 40 conversions" 0 timeout 300 $python dask.task
    ls -i versity/images/many > first
    expect "Dask: the same again" 0 timeout 300 $python dask.task
    ls -i versity/images/many > second
    same "Dask: the second run sends nothing" first second
    for n in $(seq 40); do
        restow copy -q -j 2 "many/$n" many.squashfs && cmp many.squashfs "versity/images/many/$n.squashfs"
        rm -f many.squashfs
    done > differ 2>&1
    if [ -s differ ]; then failed "Dask: other bytes"; else ok "Dask: the objects are the local files"; fi
else
    skipped "Dask: versitygw; pip install 'dask[distributed]'"
fi

rm -rf versity azure
# Engines make 7 parts of an image, of which the first try of some is killed.
cat > task.sh << 'END'
part=$1 format=$2 folder=$3
if [ $((part % 3)) = 1 ] && [ ! -e "$folder/tried$part" ]; then
    touch "$folder/tried$part"
    timeout -s KILL 0.2 restow copy -q -j 1 --to "$format" --compress zstd:9 --part "$part/7" tree "$folder/$part.part"
    exit 75
fi
exec restow copy -q -j 1 --overwrite --to "$format" --compress zstd:9 --part "$part/7" tree "$folder/$part.part"
END
joined() {
    for format in squashfs btrfs; do
        mkdir -p "engine-$1/$format"
        engine "$format" "engine-$1/$format" > said 2>&1
        [ -e "files/9.$format" ] || restow copy -q --compress zstd:9 tree "files/9.$format"
        rm -f joined
        expect "$1: 7 parts of $format, some killed, are joined" 0 \
            restow copy -q --to $format --compress zstd:9 --parts "engine-$1/$format" tree joined
        same "$1: the joined $format" joined "files/9.$format"
    done
}
if command -v parallel > /dev/null; then
    engine() { parallel --retries 3 -j 4 sh task.sh '{}' "$1" "$2" ::: $(seq 7); }
    joined parallel
else
    skipped "GNU parallel: apt-get install parallel"
fi
if [ "$(id -u)" = 0 ] && command -v slurmctld > /dev/null && command -v munged > /dev/null; then
    if ! pgrep munged > /dev/null; then
        mkdir -p /run/munge && chown munge /run/munge && su munge -s /bin/sh -c munged
        servers="$servers $(pgrep munged)"
    fi
    mkdir -p slurm/state slurm/spool
    export SLURM_CONF=$PWD/slurm/slurm.conf
    cat > "$SLURM_CONF" << END
ClusterName=one
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmctldPort=7394
SlurmdPort=7395
StateSaveLocation=$PWD/slurm/state
SlurmdSpoolDir=$PWD/slurm/spool
SlurmctldPidFile=$PWD/slurm/controller.pid
SlurmdPidFile=$PWD/slurm/daemon.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=ALL Default=YES
END
    slurmctld -D > slurm/controller.log 2>&1 &
    servers="$servers $!"
    slurmd -D > slurm/daemon.log 2>&1 &
    servers="$servers $!"
    for _ in $(seq 100); do sinfo --noheader --states idle 2> /dev/null | grep -q idle && break; sleep 0.2; done
    engine() {
        printf '#!/bin/sh\nsh task.sh "$SLURM_ARRAY_TASK_ID" %s %s\n' "$1" "$2" > array.sh
        # A second array makes the missing parts alone.
        timeout 300 sbatch --wait --output slurm/out.%a --array=1-7 array.sh
        for n in $(seq 7); do [ -e "$2/$n.part" ] || timeout 300 sbatch --wait --output slurm/out.%a --array="$n" array.sh; done
    }
    joined Slurm
else
    skipped "Slurm: as root, apt-get install slurm-wlm"
fi
if $python -c 'import ray' 2> /dev/null; then
    cat > ray.task << 'END'
import os, ray, subprocess, sys
folder, words = os.getcwd(), sys.argv[1:]
ray.init(num_cpus=4, log_to_driver=False, include_dashboard=False)
def make(part):
    for _ in range(3):
        if subprocess.run(["sh", "task.sh", str(part), *words], cwd=folder).returncode == 0:
            return
ray.get([ray.remote(make).remote(part) for part in range(1, 8)])
END
    engine() { timeout 300 $python ray.task "$1" "$2"; }
    joined Ray
else
    skipped "Ray: pip install ray; RESTOW_PYTHON names a Python that has it"
fi
exit 0
