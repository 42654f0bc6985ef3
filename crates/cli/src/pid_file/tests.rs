use super::*;

fn record() -> Record {
    Record {
        pid: 7,
        told: "http://127.0.0.1:7717".to_owned(),
        log: PathBuf::from("/tmp/a b.log"),
        code: 0,
        begun: Some(4711),
    }
}

#[test]
fn one_claim_wins_and_the_file_says_who() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pid");
    let first = PidFile::claim(&path).unwrap().unwrap();
    first.write(&record()).unwrap();
    let other = PidFile::claim(&path).unwrap().unwrap_err();
    assert_eq!(other, Some(record()));
    let mode = std::fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(first);
    // What a dead process left is no obstacle.
    assert!(PidFile::claim(&path).unwrap().is_ok());
}

#[test]
fn the_last_words_are_for_those_who_have_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pid");
    let held = PidFile::claim(&path).unwrap().unwrap();
    let seen = PidFile::find(&path).unwrap().unwrap();
    assert!(!seen.try_lock().unwrap());
    let last = Record {
        pid: 0,
        code: 1,
        ..record()
    };
    held.end(&last);
    assert!(seen.try_lock().unwrap());
    assert_eq!(seen.read().unwrap(), Some(last));
    assert!(PidFile::find(&path).unwrap().is_none());
}

#[test]
fn only_a_whole_record_is_one() {
    let whole = record().text();
    assert_eq!(Record::parse(whole.as_bytes()), Some(record()));
    let unknown = Record {
        begun: None,
        ..record()
    };
    assert_eq!(Record::parse(unknown.text().as_bytes()), Some(unknown));
    for text in [
        "".to_owned(),
        "x".to_owned(),
        "7\n".to_owned(),
        "7\nu\nl\n0\n".to_owned(),
        whole.replace("4711", ""),
        whole.replace("4711", "x"),
        whole.replace("mainstay", "another"),
        whole.replacen('7', "4294967296", 1),
        whole.replacen('7', "x", 1),
        whole.trim_end().to_owned(),
        format!("{whole}\n"),
        format!("\n{whole}"),
    ] {
        assert_eq!(Record::parse(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(Record::parse(b"7\n\xff\nl\n0\nmainstay 1\n"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn a_number_that_another_process_has_now_is_nobodys() {
    let own = Record {
        pid: std::process::id(),
        begun: process::begun(std::process::id()),
        ..record()
    };
    assert!(own.is_of_running());
    for begun in [None, own.begun.map(|begun| begun + 1)] {
        let reused = Record {
            begun,
            ..own.clone()
        };
        assert!(!reused.is_of_running(), "{reused:?}");
        assert!(!reused.end_process());
    }
    assert!(!Record::default().is_of_running());
}

#[test]
fn what_is_not_ours_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let long = vec![b'7'; 100_000];
    for content in [
        &b"nonsense"[..],
        b"4242\n",
        b"[server]\nlisten = \"127.0.0.1:0\"\n",
        b"SQLite format 3\0\x10\0\xff\xfe",
        &long,
    ] {
        std::fs::write(&path, content).unwrap();
        let refused = PidFile::claim(&path).unwrap_err().to_string();
        assert!(
            refused.contains("is not a pid file of mainstay"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn only_a_file_that_is_missing_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
    for missing in [at("a.pid"), at("no/such/a.pid")] {
        assert!(PidFile::find(&missing).unwrap().is_none());
    }
    for path in [at("file/a.pid"), at("loop/a.pid"), at(&"a".repeat(300))] {
        let told = PidFile::find(&path).unwrap_err().to_string();
        assert!(told.contains("cannot be opened"), "{told}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_entered_is_not_taken_for_one_without_a_server() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("closed/a.pid");
    let closed = path.parent().unwrap();
    std::fs::create_dir(closed).unwrap();
    let _held = PidFile::claim(&path).unwrap().unwrap();
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(closed, mode(0o000)).unwrap();
    // Of this thread alone: root would enter it all the same.
    let nobody = nix::unistd::Uid::from_raw(65534);
    let own = nix::unistd::setfsuid(nobody);
    let found = PidFile::find(&path);
    nix::unistd::setfsuid(own);
    std::fs::set_permissions(closed, mode(0o700)).unwrap();
    let told = format!("{:#}", found.unwrap_err());
    assert!(told.contains("ermission denied"), "{told}");
}

#[test]
fn neither_a_link_nor_a_pipe_nor_a_folder_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("empty"), "").unwrap();
    std::os::unix::fs::symlink(at("empty"), at("link")).unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    for (name, part) in [
        ("link", "is a symbolic link"),
        ("dangling", "is a symbolic link"),
        ("pipe", "is no plain file"),
        ("folder", "cannot be opened"),
    ] {
        let refused = PidFile::claim(&at(name)).unwrap_err().to_string();
        assert!(refused.contains(part), "{name}: {refused}");
    }
    assert!(!at("nowhere").exists());
}

#[test]
fn a_file_of_another_user_or_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pid");
    let held = PidFile::claim(&path).unwrap().unwrap();
    let metadata = held.file.metadata().unwrap();
    check(&path, &metadata, metadata.uid()).unwrap();
    let refused = check(&path, &metadata, metadata.uid() + 1).unwrap_err();
    assert!(refused.to_string().contains("belongs to another user"));
    for mode in [0o620, 0o602] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
        for refused in [
            PidFile::claim(&path).unwrap_err(),
            PidFile::find(&path).unwrap_err(),
        ] {
            assert!(refused.to_string().contains("chmod go-w"), "{refused}");
        }
    }
}
