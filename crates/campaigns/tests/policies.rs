//! Guards the comparison with known policies against a trace or a room that is not the server's: it would look as good as a true
//! one.

#[path = "../../bench/tests/support/scripted.rs"]
mod scripted;
mod support;

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use scripted::Scripted;
use support::measure;

/// A server that holds the first `most` keys that are set.
fn holds(most: usize) -> Scripted {
    let held = Mutex::new(HashSet::<String>::new());
    Scripted::start(move |command, _| {
        let mut held = held.lock().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        match words[0] {
            "set" => {
                if held.len() < most {
                    held.insert(words[1].to_owned());
                }
                b"STORED\r\n".to_vec()
            }
            "get" if held.contains(words[1]) => {
                let length = 100;
                let mut reply = format!("VALUE {} 0 {length}\r\n", words[1]).into_bytes();
                reply.resize(reply.len() + length, b'v');
                reply.extend(b"\r\nEND\r\n");
                reply
            }
            "get" => b"END\r\n".to_vec(),
            "mg" if held.contains(words[1]) => b"HD\r\n".to_vec(),
            "mg" => b"EN\r\n".to_vec(),
            _ => b"ERROR\r\n".to_vec(),
        }
    })
}

/// Something in Python's place that tells as miss ratios what it was given: unit and capacity, and the trace's next accesses.
const PYTHON: &str = r#"#!/bin/sh
next=$(od -An -v -t d8 -w24 -j16 "$3" | awk '{ printf "%s%s", sep, $1; sep = "," }')
[ "$4" = objects ] || exit 1
echo "{\"capacity\": $5, \"records\": $(($(stat -c %s "$3") / 24)), \"first\": ${next%%,*}, \"last\": ${next##*,}}"
"#;

fn fake_python(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("python");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("--python={}", path.display())
}

#[test]
fn policies_see_the_requests_with_as_much_room_as_the_server_holds() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.lis");
    // Blocks 1 to 5, then 1 to 3 again: the first is wanted again at request 5.
    std::fs::write(&trace, "1 5 0 0\n1 3 0 1\n").unwrap();
    let server = holds(3);
    let python = fake_python(&folder, PYTHON);
    let (result, json) =
        measure(&["policies", trace.to_str().unwrap(), "--value-size", "100", "--server", &server.address, &python]);
    result.unwrap();
    assert_eq!(json["tally"]["misses"], 5, "{json}");
    let policies = &json["policies"];
    assert_eq!((&policies["unit"], &policies["capacity"]), (&"objects".into(), &3.into()), "{json}");
    let given = &policies["miss_ratios"];
    assert_eq!(given["capacity"], 3.0);
    assert_eq!(given["records"], 8.0);
    assert_eq!(given["first"], 5.0);
    assert_eq!(given["last"], -1.0);
}

#[test]
fn what_policies_cannot_see_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = holds(10);
    let python = fake_python(&folder, PYTHON);
    let profile = ["policies", "profile", "--profile", "twitter-7", "--keys", "10", "--limit", "50"];
    let (result, _) = measure(&[&profile[..], &["--server", &server.address, &python]].concat());
    assert!(result.unwrap_err().to_string().contains("--mix get=1 --ttl 0"));
}

#[test]
fn a_python_without_the_package_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.lis");
    std::fs::write(&trace, "1 5 0 0\n").unwrap();
    let server = holds(3);
    let python = fake_python(&folder, "#!/bin/sh\necho 'No module named libcachesim' >&2\nexit 1\n");
    let (result, _) = measure(&["policies", trace.to_str().unwrap(), "--server", &server.address, &python]);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("pip install libcachesim") && error.contains("No module named"), "{error}");
}
