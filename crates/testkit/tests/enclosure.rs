//! An enclosure keeps its promises: hosts see each other, and nothing of it is left, however it ends.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use syncline_testkit::enclosure::Enclosure;
use syncline_testkit::ranks::eventually;
use syncline_testkit::slurm::Slurm;

const LIMIT: Duration = Duration::from_secs(10);

/// The enclosure, or a word why there is none.
fn enclosure(hosts: usize) -> Option<Enclosure> {
    Enclosure::new(hosts).inspect_err(|reason| println!("skipped: {reason}")).ok()
}

#[test]
fn hosts_have_their_own_names_and_networks_and_see_each_other() {
    let Some(place) = enclosure(2) else { return };
    let seen = |host: usize| {
        let words =
            ["sh", "-c", "hostname; readlink /proc/self/ns/net; ping -c 1 -W 2 h1 >/dev/null && ping -c 1 -W 2 h2 >/dev/null && echo both"];
        let words = place.on_host(host, &words.map(str::to_owned));
        let output = place.command(&words).output().expect("nsenter starts");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (first, second) = (seen(1), seen(2));
    assert_eq!((first[0].as_str(), second[0].as_str()), ("h1", "h2"));
    assert_ne!(first[1], second[1], "one network namespace for each");
    assert_eq!((first[2].as_str(), second[2].as_str()), ("both", "both"));
}

#[test]
fn files_and_processes_end_with_it() {
    let Some(place) = enclosure(1) else { return };
    let folder = place.folder().to_owned();
    place.shell(&format!("echo here >{}/file; sleep 1000 >/dev/null 2>&1 & echo $! >{}/pid", folder.display(), folder.display()));
    assert_eq!(std::fs::read_to_string(place.from_outside(&folder.join("file"))).expect("readable from outside"), "here\n");
    assert!(!folder.join("file").exists(), "the folder is the inside's own");
    assert!(!Path::new("/run/netns/h1").exists(), "and so are its hosts");
    drop(place);
    assert!(!folder.exists());
}

/// Not a test of its own: holds an enclosure until it is killed.
#[test]
fn as_an_owner() {
    if std::env::var_os("ENCLOSURE_OWNER").is_none() {
        return;
    }
    let place = Slurm::on_one_host(1).expect("the test that started this one had an enclosure");
    println!("\nFOLDER {}", place.enclosure().folder().display());
    loop {
        std::thread::park();
    }
}

#[test]
fn nothing_is_left_when_its_owner_is_killed() {
    if let Err(reason) = Slurm::on_one_host(1) {
        return println!("skipped: {reason}");
    }
    use std::io::{BufRead, BufReader};
    let mut owner = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "as_an_owner", "--nocapture"])
        .env("ENCLOSURE_OWNER", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(owner.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let folder = lines.filter_map(|line| line.strip_prefix("FOLDER ").map(str::to_owned)).next().expect("it says its folder");
    let daemons = || {
        let processes = std::fs::read_dir("/proc").expect("there is /proc").flatten();
        let words = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        words.filter(|words| words.starts_with("slurm") && words.contains(&folder)).count()
    };
    assert!(Path::new(&folder).is_dir());
    assert_eq!(daemons(), 2, "a controller and a node");
    owner.kill().expect("it runs");
    owner.wait().expect("it ends");
    eventually("the end of the daemons and of their folder", LIMIT, || daemons() == 0 && !Path::new(&folder).exists());
}
