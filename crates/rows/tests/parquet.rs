//! Parquet files of another writer (Arrow's for Python), in which each type and each way to compress occurs once; and files that
//! are none.
#![cfg(feature = "parquet")]

use std::fs;
use std::path::Path;

use moneta_rows::Mapping;
use moneta_rows::files::{Format, RowFile};
use moneta_rows::format::{Reading, open};

fn mapping(key: &str, value: &str) -> Mapping {
    Mapping {
        prefix: String::new(),
        key: vec![key.to_owned()],
        separator: ":".to_owned(),
        value: value.split(',').map(str::to_owned).collect(),
        ttl: Some("ttl".to_owned()),
        default_ttl: 0,
        flags: None,
        value_max: 1 << 20,
    }
}

const READING: Reading = Reading { delimiter: None, names: None, row_max: 1 << 20 };

fn fixture(name: &str) -> RowFile {
    // A test runs in the folder of its package.
    let path = Path::new("tests/fixtures").join(name);
    RowFile::at(path, None).expect("it is there")
}

/// Keys, values and ends of life of all rows from one on; of bad ones why.
fn read(file: &RowFile, mapping: &Mapping, from: u64) -> Vec<Result<(String, String, u32), String>> {
    let mut rows = open(file, mapping, &READING).expect("it can be read");
    rows.skip(from).expect("it has so many");
    let columns = rows.columns().expect("it has names");
    let mut all = Vec::new();
    while let Some(row) = rows.next().expect("it can be read") {
        let made = row.and_then(|cells| mapping.make(&cells, &columns, 1000));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        all.push(made.map(|made| (text(made.key), text(made.value), made.expiry.0)));
    }
    all
}

#[test]
fn every_type_and_every_compression_is_read() {
    for name in ["pyarrow-none.parquet", "pyarrow-snappy.parquet", "pyarrow-zstd.parquet", "pyarrow-gzip.parquet"] {
        let file = fixture(name);
        let rows = read(&file, &mapping("id", "name,price,ratio,day,at,tags,ok"), 0);
        assert_eq!(rows.len(), 5, "{name}");
        let (key, value, expiry) = rows[0].clone().expect("it is good");
        let wanted = r#"{"name":"one","price":"1.50","ratio":0.5,"day":"2026-01-31","at":"2026-01-31 12:00:00.000 +00:00","tags":["a","b"],"ok":true}"#;
        assert_eq!((&*key, &*value, expiry), ("1", wanted, 1100), "{name}");
        let (_, value, expiry) = rows[2].clone().expect("it is good");
        let wanted = r#"{"name":"trois","price":"-0.01","ratio":2.0,"day":"2026-01-31","at":"2026-01-31 12:00:00.000 +00:00","tags":null,"ok":null}"#;
        assert_eq!((&*value, expiry), (wanted, 0), "{name}");
        assert_eq!(rows[4].clone().expect_err("it has no key"), "\"id\", of the key, is empty");
        // Going on at any row, whole groups are passed over.
        let rows = read(&file, &mapping("id", "name"), 0);
        for from in 0..=5 {
            assert_eq!(read(&file, &mapping("id", "name"), from), rows[from as usize..], "{name} from {from}");
        }
    }
}

#[test]
fn a_file_that_is_none_or_is_damaged_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.parquet");
    let whole = fs::read(fixture("pyarrow-snappy.parquet").path).expect("it is there");
    let attempt = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("it can be written");
        let file = RowFile::at(path.clone(), Some(Format::Parquet)).expect("it is there");
        let mapping = mapping("id", "name");
        let mut rows = open(&file, &mapping, &READING).map_err(|error| error.to_string())?;
        let mut count = 0;
        while rows.next().map_err(|error| error.to_string())?.is_some() {
            count += 1;
        }
        Ok::<u32, String>(count)
    };
    assert_eq!(attempt(&whole), Ok(5));
    assert!(attempt(b"key,value\n").is_err_and(|error| error.contains("a.parquet")));
    assert!(attempt(&whole[..whole.len() - 9]).is_err());
    // Any flipped byte is an error or another row, and never the end of the process.
    for at in (0..whole.len()).step_by(7) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        let _ = attempt(&flipped);
    }
    let error =
        open(&fixture("pyarrow-zstd.parquet"), &mapping("id", "nothing"), &READING).err().expect("no such column");
    assert!(error.to_string().contains("it has no column \"nothing\"; it has id, name"), "{error}");
}
