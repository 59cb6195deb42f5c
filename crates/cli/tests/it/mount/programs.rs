use std::process::Command;

use testkit::{TempDir, run, tool};

use super::{Mounted, script};

/// A small system: a shell, tools, Python, all that they need, and a repository.
const SYSTEM: &str = r#"
mkdir -p src/bin src/usr/lib src/repository src/tmp
add() { for file; do for path in "$file" $(ldd "$file" | grep -o '/[^ ]*'); do
  mkdir -p "src$(dirname "$path")"; cp -Ln "$path" "src$path"; done; done; }
add /bin/sh /bin/ls /bin/cat /usr/bin/sha256sum
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
add "$python"; ln -s "$python" src/bin/python3
lib=$(python3 -c 'import json, os; print(os.path.dirname(os.path.dirname(json.__file__)))')
mkdir -p "src$lib"; tar -C "$lib" --exclude=./test --exclude=./site-packages \
  --exclude='./config-*' --exclude=__pycache__ --exclude=./ensurepip --exclude=./idlelib -c . | tar -C "src$lib" -x
cd src/repository; git init -q .; git config user.name a; git config user.email a@b
for n in 1 2 3 4 5; do seq $n 20000 > numbers; git add numbers; git commit -qm $n; done; git gc -q
cd ..; find . -type f -print0 | sort -z | xargs -0 sha256sum > ../sums
"#;

#[test]
#[ignore = "needs root"]
fn programs_run_from_a_mount() {
    let tools = ["mksquashfs", "git", "python3"].map(tool);
    let [Some(mksquashfs), Some(_), Some(_)] = tools else {
        return;
    };
    let dir = TempDir::new();
    script(dir.path(), SYSTEM);
    let image = dir.join("x.squashfs");
    let mut command = mksquashfs.command();
    command.arg(dir.join("src")).arg(&image);
    run(command.args(["-comp", "zstd", "-quiet", "-no-progress"]));
    let mounted = Mounted::new(&image, [""; 0]);
    let point = mounted.path().display().to_string();
    let out = script(
        dir.path(),
        &format!("chroot {point} /bin/sh -c 'ls / && cat /repository/numbers' | wc -l"),
    );
    assert!(out.trim().parse::<u32>().unwrap() > 19_996);
    let import = "import json, decimal, email; print(json.dumps([1]))";
    let out = run(Command::new("chroot")
        .arg(mounted.path())
        .args(["/bin/python3", "-c", import]));
    assert_eq!(out.stdout, b"[1]\n");
    // Another user owns the repository for git if that is not said.
    let fsck =
        format!("git -c safe.directory='*' -C {point}/repository fsck --full 2>&1; echo done");
    assert!(script(dir.path(), &fsck).ends_with("done\n"));
    // Eight processes, all at once, each with every file.
    let check = format!(
        "cd {point}; all=; for n in 1 2 3 4 5 6 7 8; do sha256sum --quiet -c {}/sums & all=\"$all $!\"; done
         for one in $all; do wait $one; done",
        dir.path().display()
    );
    assert_eq!(script(dir.path(), &check), "");
    mounted.unmount();
}
