//! The process's use of resources, under the names that Prometheus' client libraries use.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::usage::{self, ProcessorTime};

/// Writes all of them; omits those that the operating system does not report.
pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let times = ProcessorTime::now();
    let seconds = (times.user + times.system).as_secs_f64();
    encoder
        .encode_descriptor("process_cpu_seconds", "Processor time, user and system.", None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
    let gauges = [
        ("process_resident_memory_bytes", "Memory in RAM.", usage::resident_bytes()),
        ("process_virtual_memory_bytes", "Address space.", usage::virtual_bytes()),
        ("process_open_fds", "Open file descriptors.", usage::open_descriptors()),
        ("process_max_fds", "Most file descriptors that may be open.", usage::most_descriptors()),
        ("process_threads", "Threads.", usage::threads()),
    ];
    if let Some(start) = usage::start_seconds() {
        let help = "Unix time at which the process began.";
        encoder.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?.encode_gauge(&start)?;
    }
    for (name, help, value) in gauges {
        if let Some(value) = value {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
