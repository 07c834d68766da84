//! A broker in KRaft mode, and the tools that come with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Process, Signal, file, output, steady_port, until};

/// A broker that is its own controller.
pub struct Broker {
    /// `None`: it was killed.
    process: Option<Process>,
    properties: String,
    /// Where clients reach it.
    pub address: String,
}

fn java(memory: &str, arguments: &[&str]) -> Command {
    let jars =
        std::env::var_os("MONETA_TEST_KAFKA").expect("MONETA_TEST_KAFKA: the folder of its jars; make test-kafka");
    let mut command = Command::new("java");
    // Programs that run for seconds: they are to start soon.
    command.args([memory, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
    command.arg(Path::new(&jars).join("*")).args(arguments);
    command
}

impl Broker {
    pub fn start(folder: &Path) -> Self {
        let (client, controller) = (steady_port(), steady_port());
        let data: PathBuf = folder.join("kafka");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{client}\ncontroller.listener.names=CONTROLLER\n\
             log.dirs={}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n",
            data.display()
        );
        let properties = file(folder, "kafka.properties", &text);
        let format = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", &properties];
        output(&mut java("-Xmx128m", &format));
        let mut broker = Self { process: None, properties, address: format!("127.0.0.1:{client}") };
        broker.run();
        broker
    }

    /// Starts it where it was.
    pub fn run(&mut self) {
        let process = Process::start(&mut java("-Xmx256m", &["kafka.Kafka", &self.properties]));
        process.until("the broker listens", || std::net::TcpStream::connect(&self.address).is_ok());
        self.process = Some(process);
    }

    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// It answers nothing for a while, and nothing says that it is gone.
    pub fn stop(&self) {
        self.process.as_ref().expect("it runs").stop();
    }

    pub fn go_on(&self) {
        self.process.as_ref().expect("it runs").signal(Signal::SIGCONT);
    }

    /// Runs one of its tools until it succeeds, as it does once the broker has begun. Returns what it prints.
    fn tool(&self, class: &str, arguments: &[&str], input: &str) -> String {
        let mut printed = String::new();
        until(&format!("{class} succeeds"), || {
            let mut command = java("-Xmx128m", &[class, "--bootstrap-server", &self.address]);
            let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("Java runs");
            let mut stdin = child.stdin.take().expect("piped");
            // One that fails at once does not read.
            let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
            drop(stdin);
            let ended = child.wait_with_output().expect("it ends");
            printed = String::from_utf8_lossy(&ended.stdout).into_owned();
            ended.status.success()
        });
        printed
    }

    /// Makes a topic. `more`: what it is told beside.
    pub fn topic(&self, name: &str, partitions: u32, more: &[&str]) -> String {
        let partitions = partitions.to_string();
        let arguments = ["--create", "--if-not-exists", "--topic", name, "--partitions", &partitions];
        self.tool("org.apache.kafka.tools.TopicCommand", &[&arguments, more].concat(), "");
        format!("kafka:{}/{name}", self.address)
    }

    pub fn add_partitions(&self, name: &str, partitions: u32) {
        let partitions = partitions.to_string();
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            &["--alter", "--topic", name, "--partitions", &partitions],
            "",
        );
    }

    /// Writes messages, as anybody may who is let.
    pub fn write(&self, name: &str, messages: &str) {
        self.tool("org.apache.kafka.tools.ConsoleProducer", &["--topic", name], messages);
    }

    /// The messages that are in a topic that nobody writes now, a line each, as Kafka's own reader prints them.
    pub fn read(&self, name: &str) -> String {
        let arguments = ["--topic", name, "--from-beginning", "--timeout-ms", "8000"];
        self.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments, "")
    }

    /// Drops all that is in a partition, as retention does.
    pub fn drop_all(&self, folder: &Path, name: &str, partitions: u32) {
        let each = (0..partitions).map(|one| format!(r#"{{"topic":"{name}","partition":{one},"offset":-1}}"#));
        let text = format!(r#"{{"version":1,"partitions":[{}]}}"#, each.collect::<Vec<_>>().join(","));
        let path = file(folder, "dropped.json", &text);
        self.tool("org.apache.kafka.tools.DeleteRecordsCommand", &["--offset-json-file", &path], "");
    }
}
