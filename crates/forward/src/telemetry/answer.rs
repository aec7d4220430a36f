//! Parses packets of a telemetry program. For any bytes, parsing terminates and allocates at most a
//! small multiple of their length.

use serde_json::Value;

/// The greeting that a program sends to a connected client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// `DPDK 22.11.11`.
    pub version: String,
    /// The program's process ID, in the program's own PID namespace.
    pub process: u32,
    /// The longest answer that the program sends, in bytes.
    pub answer_bytes_max: usize,
}

/// The longest version that is accepted, in bytes.
const VERSION_BYTES_MAX: usize = 128;

/// Parses a greeting.
///
/// # Errors
/// A description of the fault.
pub fn read_greeting(packet: &[u8]) -> Result<Greeting, String> {
    let value = parse(packet)?;
    let text = value.get("version").and_then(Value::as_str).ok_or("it has no version")?;
    if text.is_empty() || text.len() > VERSION_BYTES_MAX || text.chars().any(char::is_control) {
        return Err("its version is empty, too long or not printable".to_owned());
    }
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    let process = number("pid").and_then(|process| u32::try_from(process).ok());
    let most = number("max_output_len").and_then(|bytes| usize::try_from(bytes).ok());
    Ok(Greeting {
        version: text.to_owned(),
        process: process.ok_or("it has no process")?,
        answer_bytes_max: most.ok_or("it has no longest length of answers")?,
    })
}

/// Parses the answer to a command: the value under the command's name, or [`Value::Null`] if the
/// program refuses the command.
///
/// # Errors
/// A description of the fault.
pub fn read_answer(packet: &[u8], command: &str) -> Result<Value, String> {
    // The name without parameters.
    let name = command.split(',').next().unwrap_or_default();
    let Value::Object(mut answer) = parse(packet)? else {
        return Err("it is not an object".to_owned());
    };
    let value = answer.remove(name);
    match value {
        Some(value) if answer.is_empty() => Ok(value),
        Some(_) => Err("it answers more than one command".to_owned()),
        None => Err("it answers another command".to_owned()),
    }
}

fn parse(packet: &[u8]) -> Result<Value, String> {
    // DPDK sends some packets with a trailing NUL.
    let packet = packet.strip_suffix(&[0]).unwrap_or(packet);
    serde_json::from_slice(packet).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => "it ends early".to_owned(),
        _ => format!("it is not JSON: {error}"),
    })
}

/// The beginning of a packet, for a message.
pub(super) fn beginning(packet: &[u8]) -> String {
    const SHOWN: usize = 60;
    String::from_utf8_lossy(&packet[..packet.len().min(SHOWN)]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn greeting_of_22_11_is_parsed() {
        let text = br#"{"version":"DPDK 22.11.11","pid":4711,"max_output_len":16384}"#;
        let greeting = read_greeting(text).unwrap();
        assert_eq!((&*greeting.version, greeting.process), ("DPDK 22.11.11", 4711));
        assert_eq!(greeting.answer_bytes_max, 16384);
    }

    #[test]
    fn invalid_answer_is_refused_with_reason() {
        for (text, part) in [
            ("", "ends early"),
            (r#"{"/a":[1,2"#, "ends early"),
            ("hello", "not JSON"),
            ("[1]", "not an object"),
            (r#"{"/b":1}"#, "another command"),
            (r#"{"/a":1,"/b":2}"#, "more than one command"),
        ] {
            let problem = read_answer(text.as_bytes(), "/a,0").unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        assert_eq!(read_answer(br#"{"/a":null}"#, "/a,0,rx"), Ok(Value::Null));
        assert_eq!(read_answer(b"{\"/a\":[]}\0", "/a"), Ok(Value::Array(Vec::new())));
        for text in [r#"{"version":"","pid":1,"max_output_len":1}"#, r#"{"version":"x","pid":-1}"#]
        {
            assert!(read_greeting(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = format!("{{\"/a\":{}", "[".repeat(100_000));
        assert!(read_answer(deep.as_bytes(), "/a").unwrap_err().contains("recursion"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (read_answer(&bytes, "/a"), read_greeting(&bytes));
        }
    }
}
