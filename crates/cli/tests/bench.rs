//! `syncline bench`: small measurements of real processes, and what they print.

mod support;

use std::collections::BTreeMap;

use support::{Ending, Launcher, syncline};

fn bench(words: &[&str]) -> Ending {
    Launcher::of(syncline(&[&["bench"], words].concat())).end()
}

/// The lines `PB <workload> key=value …`, as numbers.
fn reports(end: &Ending, workload: &str) -> Vec<BTreeMap<String, f64>> {
    let of_line = |line: &str| {
        let pairs = line.strip_prefix(&format!("PB {workload} "))?.split(' ').filter_map(|pair| pair.split_once('='));
        Some(pairs.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect())
    };
    end.out.lines().filter_map(of_line).collect()
}

#[test]
fn pb_reports_each_worker_in_the_words_of_the_harness() {
    let workloads: [(&str, &[&str]); 15] = [
        ("w1", &["w1", "n=1", "size=4096", "secs=0.05"]),
        ("w1", &["w1", "n=2", "size=4096", "secs=0.05"]),
        ("w1", &["w1", "n=2", "size=4096", "secs=0.05", "zc=1"]),
        ("w1", &["w1", "n=2", "size=1000004", "secs=0.05"]),
        ("w1", &["w1", "n=2", "size=1000004", "secs=0.05", "zc=1"]),
        ("w2", &["w2", "n=2", "size=4096", "secs=0.05"]),
        ("w2", &["w2", "n=2", "size=100000", "secs=0.05", "mode=sync"]),
        ("w2", &["w2", "n=2", "size=4096", "secs=0.05", "mode=staleness=2"]),
        ("w3", &["w3", "n=2", "secs=0.05"]),
        ("w3", &["w3", "n=2", "secs=0.05", "mode=sync"]),
        ("w4pull", &["w4", "n=2", "what=pull", "secs=0.05"]),
        ("w4barrier", &["w4", "n=2", "what=barrier", "secs=0.05"]),
        ("w2", &["--face", "kv", "w2", "n=2", "size=4096", "secs=0.05"]),
        ("w3", &["w3", "n=2", "secs=0.05", "face=kv"]),
        ("w4pull", &["w4", "n=2", "what=pull", "secs=0.05", "face=kv"]),
    ];
    for (workload, words) in workloads {
        let end = bench(&[&["pb"], words].concat());
        end.assert_code(0);
        assert!(!end.out.contains("PB error"), "{words:?}: {}", end.out);
        let reports = reports(&end, workload);
        let alone = workload == "w4pull" || words.contains(&"n=1");
        assert_eq!(reports.len(), if alone { 1 } else { 2 }, "{words:?}: {}", end.out);
        for (rank, report) in reports.iter().enumerate() {
            assert_eq!(report["rank"], rank as f64);
            // Where all must take part, a first look at the speed decides how many rounds there are; the others take the time asked.
            let long_enough = ["w1", "w4barrier"].contains(&workload) || report["elapsed"] > 0.04;
            assert!(report["iters"] >= 4.0 && report["elapsed"] > 0.0 && long_enough, "{words:?}: {report:?}");
            assert!(report["min"] <= report["p50"] && report["p50"] <= report["p99"] && report["p99"] <= report["max"]);
        }
    }
}

#[test]
fn stores_are_measured_in_every_setting_and_nothing_is_wrong() {
    let words = ["kv", "--json", "--sizes", "64K", "-n", "2", "--secs", "0.02", "--runs", "1", "--rows", "5000"];
    let end = bench(&[&words[..], &["--code", "none,2bit", "--update", "add,adam", "--peers", "--python", "no-such-python"]].concat());
    end.assert_code(0);
    let rows: Vec<&str> = end.out.lines().collect();
    assert_eq!(rows.len(), 12, "dense in two codes, rows in one; two types, two updates: {}", end.out);
    assert!(rows.iter().all(|row| row.contains("\"who\":\"syncline\"") && row.contains("\"wrong\":0")), "{}", end.out);
    assert!(end.err.contains("skipped: mxnet: no-such-python has no MXNet"), "{}", end.err);
    bench(&["kv", "--type", "local"]).assert_code(1);
    bench(&["kv", "--code", "3bit"]).assert_code(1);
}

#[test]
fn channels_are_measured_between_threads_and_processes_beside_whatever_is_there() {
    let words = [
        "ipc",
        "--json",
        "--sizes",
        "64,100K",
        "--pairs",
        "1x1,2x2",
        "--secs",
        "0.1",
        "--runs",
        "1",
        "--peers",
        "--python",
        "no-such-python",
    ];
    let end = bench(&words);
    end.assert_code(0);
    let rows: Vec<serde_json::Value> = end.out.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let of = |who: &str, place: &str| rows.iter().filter(|row| row["who"] == who && row["place"] == place).count();
    assert_eq!((of("syncline", "threads"), of("syncline", "processes"), of("std", "threads"), rows.len()), (4, 4, 2, 10), "{}", end.out);
    for row in &rows {
        assert!(row["per_s"].as_f64().unwrap() > 0.0, "{row}");
        let alone = row["who"] == "syncline" && row["producers"] == 1;
        assert_eq!(row["rtt_us"].as_f64().is_some_and(|us| us > 0.0), alone, "{row}");
    }
    for skipped in
        ["mp-queue is skipped at 1x1", "faster-fifo is skipped at 1x1", "zeromq is skipped at 2x2", "std is skipped at 2x2: it has one"]
    {
        assert!(end.err.contains(skipped), "{skipped}: {}", end.err);
    }
    bench(&["ipc", "--where", "elsewhere"]).assert_code(1);
}

#[test]
fn pb_measures_two_bits_in_both_directions() {
    let end = bench(&["pb", "w7", "n=1", "size=100004", "secs=0.02"]);
    end.assert_code(0);
    assert!(!end.out.contains("PB error"), "{}", end.out);
    for workload in ["w7quant", "w7dequant"] {
        let reports = reports(&end, workload);
        assert!(reports.len() == 1 && reports[0]["iters"] >= 5.0 && reports[0]["p50"] > 0.0, "{}", end.out);
    }
}

#[test]
fn pb_tells_when_everybody_was_there_and_what_a_large_array_cost() {
    let end = bench(&["pb", "w6", "n=2"]);
    end.assert_code(0);
    assert!(!end.out.contains("PB error"), "{}", end.out);
    assert!(reports(&end, "w6").iter().all(|report| report["wall"] > 1.7e9), "{}", end.out);
    let memory = reports(&end, "w6rss");
    assert_eq!(memory.len(), 2, "{}", end.out);
    assert!(memory.iter().all(|report| report["kb"] > 64.0 * 1024.0), "{}", end.out);
    assert!(end.out.contains("PB w6rss role=rank rank=1 kb="), "{}", end.out);
}

#[test]
fn pb_says_what_it_does_not_offer() {
    assert_eq!(bench(&["pb", "w9"]).out, "PB error w9  is not offered\n");
    let end = bench(&["pb", "w2", "mode=eventually"]);
    end.assert_code(1);
    end.assert_says("there is no mode eventually; choose among async, sync, staleness=K");
}

#[test]
fn every_setting_of_bench_table_is_a_line_with_nothing_wrong() {
    let scratch = tempfile::tempdir().unwrap();
    let plot = scratch.path().join("table.svg");
    let quick = ["table", "--rows", "1000", "--secs", "0.01", "--runs", "2", "--sizes", "256,64K", "-n", "1,2"];
    let end = bench(&[&quick[..], &["--mode", "async,sync,staleness=1", "--json", "--plot", plot.to_str().unwrap()]].concat());
    end.assert_code(0);
    let rows: Vec<serde_json::Value> = end.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2 * 3 * 2 * 2, "what × mode × workers × size");
    for row in &rows {
        assert_eq!(row["wrong"], 0, "{row}");
        let positive =
            ["time_us", "p99_us", "loops_per_s", "slowest", "fastest", "algbw_gb_per_s", "busbw_gb_per_s", "limit_gb_per_s", "of_limit"];
        assert!(positive.iter().all(|name| row[name].as_f64().unwrap() > 0.0), "{row}");
    }
    assert_eq!(rows[0]["what"], "dense");
    assert_eq!(rows[23]["mode"], "staleness=1");
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert_eq!(drawn.matches("<circle").count(), rows.len());
}

#[test]
fn bench_table_measures_other_roles_and_transports_in_columns() {
    let quick = ["table", "--rows", "1000", "--secs", "0.01", "--runs", "1", "--sizes", "64K", "-n", "2"];
    let end = bench(&[&quick[..], &["--servers", "0,1", "--transport", "shm,unix,tcp,noise"]].concat());
    end.assert_code(0);
    let lines: Vec<Vec<&str>> = end.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 3 + 2 * 2 * 4, "{}", end.out);
    assert_eq!(lines[1][..5], ["what", "n", "srv", "mode", "transport"]);
    for line in &lines[3..] {
        assert_eq!((line.len(), line[line.len() - 1]), (15, "0"), "{}", end.out);
    }
}

#[test]
fn bench_table_refuses_what_it_cannot_measure_before_it_starts() {
    for (words, said) in [
        (["--sizes", "6"], "6 bytes are no number of floats"),
        (["--sizes", "100"], "100 bytes are no number of rows; a row has 256"),
        (["--transport", "pigeon"], "there is no transport pigeon for tables"),
        (["--secs", "-1"], "-1"),
    ] {
        let end = bench(&[&["table"], &words[..]].concat());
        assert_ne!(end.code, 0);
        assert_eq!(end.out, "");
        end.assert_says(said);
    }
}

/// Rows of `bench allreduce --json`.
fn collective(words: &[&str]) -> Vec<serde_json::Value> {
    let quick = ["allreduce", "--secs", "0.005", "--runs", "1", "--json"];
    let end = bench(&[&quick[..], words].concat());
    end.assert_code(0);
    let rows: Vec<serde_json::Value> = end.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in &rows {
        assert_eq!(row["wrong"], 0, "{row}");
        assert!(row["time_us"].as_f64().unwrap() > 0.0, "{row}");
    }
    rows
}

#[test]
fn every_collective_operation_is_measured_with_nothing_wrong() {
    let all = "allreduce,reduce,broadcast,scatter,gather,all_gather,reduce_scatter,all_to_all,barrier";
    let scratch = tempfile::tempdir().unwrap();
    let plot = scratch.path().join("all.svg");
    let rows = collective(&["--op", all, "-n", "1,3", "--sizes", "100,64K", "--plot", plot.to_str().unwrap()]);
    assert_eq!(rows.len(), 2 * (8 * 2 + 1), "ranks × operations × sizes, and barriers");
    let of = |operation: &str| rows.iter().find(|row| row["operation"] == operation && row["ranks"] == 3 && row["size"] == 65536).unwrap();
    let share = |row: &serde_json::Value| row["busbw_gb_per_s"].as_f64().unwrap() / row["algbw_gb_per_s"].as_f64().unwrap();
    assert!((share(of("allreduce")) - 4.0 / 3.0).abs() < 1e-9 && (share(of("broadcast")) - 1.0).abs() < 1e-9);
    assert!((share(of("scatter")) - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!((&of("allreduce")["redop"], &of("broadcast")["redop"]), (&"sum".into(), &"none".into()));
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(drawn.contains("allreduce, 3 ranks") && drawn.contains("syncline shm"), "{drawn}");
}

#[test]
fn other_numbers_and_shared_arrays_are_measured_too() {
    for (dtype, redop) in
        [("bfloat16", "mean"), ("float16", "prod"), ("int8", "or"), ("int64", "min"), ("float64", "and"), ("uint8", "max")]
    {
        let rows = collective(&["--op", "allreduce,reduce_scatter", "--sizes", "4K", "--dtype", dtype, "--redop", redop, "--shared"]);
        assert_eq!((rows.len(), &rows[0]["dtype"], &rows[1]["redop"]), (2, &dtype.into(), &redop.into()));
    }
}

#[test]
fn peers_are_measured_or_missed_in_words() {
    let end = bench(&["allreduce", "--secs", "0.005", "--runs", "1", "--sizes", "4K", "--peers", "--python", "no-such-python"]);
    end.assert_code(0);
    end.assert_says("skipped: gloo: no-such-python has no torch.distributed");
    let lines: Vec<Vec<&str>> = end.out.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.iter().all(|line| line.len() == 14 && line[13] == "0"), "{}", end.out);
    let said = end.err.contains("skipped: openmpi");
    assert_eq!(lines.len(), if said { 1 } else { 2 }, "{}\n{}", end.out, end.err);
}

/// Measures `operations` beside another library, which must give a right row for each of them and each of two sizes; where it
/// is not installed, says so in the words that `bench` has for it.
fn measured_beside(peer: &str, python: &str, operations: &str, absent: &str) {
    let quick = ["allreduce", "--secs", "0.005", "--runs", "1", "--json", "-n", "2", "--sizes", "400,64K"];
    let end = bench(&[&quick[..], &["--op", operations, "--peers", "--python", python]].concat());
    if end.err.contains(&format!("skipped: {absent}")) {
        return println!("skipped: {absent}");
    }
    end.assert_code(0);
    assert!(!end.err.contains(&format!("skipped: {peer}")), "{}", end.err);
    let rows: Vec<serde_json::Value> = end.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for operation in operations.split(',') {
        for size in if operation == "barrier" { &[0][..] } else { &[400, 65536] } {
            let found = rows.iter().find(|row| row["who"] == peer && row["operation"] == operation && row["size"] == *size);
            let row = found.unwrap_or_else(|| panic!("no row of {peer} for {operation} of {size} bytes: {}", end.out));
            assert!(row["wrong"] == 0 && row["time_us"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn open_mpi_is_measured_beside_us() {
    let operations = "allreduce,reduce,broadcast,scatter,gather,all_gather,reduce_scatter,all_to_all,barrier";
    measured_beside("openmpi", "no-such-python", operations, "openmpi: mpicc and mpirun of Open MPI are not installed");
}

#[test]
fn gloo_is_measured_beside_us() {
    // Debian's own interpreter has Debian's PyTorch, whatever environment is active. Two operations: PyTorch takes seconds to load.
    let absent = "gloo: /usr/bin/python3 has no torch.distributed; --python names another";
    measured_beside("gloo", "/usr/bin/python3", "allreduce,scatter", absent);
}

#[test]
fn bench_allreduce_refuses_what_it_cannot_measure_before_it_starts() {
    for (words, said) in [
        (["--sizes", "6"], "6 bytes are no number of float32"),
        (["--dtype", "float128"], "float128"),
        (["--redop", "xor"], "there is no xor; choose among sum, prod"),
        (["--plan", "star"], "no plan is called `star`"),
        (["--transport", "pigeon"], "there is no transport pigeon"),
    ] {
        let end = bench(&[&["allreduce"], &words[..]].concat());
        assert_ne!(end.code, 0);
        assert_eq!(end.out, "");
        end.assert_says(said);
    }
}
