//! Signatures of requests: of S3 (version 4) and of Azure (shared key).

use tree::{Sha256, base64, date, sha256};

use crate::url::{Url, decode, encode, is_unreserved};

/// HMAC (RFC 2104) with SHA-256.
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&sha256(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let hash = |pad: u8, message: &[u8]| {
        let mut hash = Sha256::new();
        hash.update(&block.map(|byte| byte ^ pad));
        hash.update(message);
        hash.finish()
    };
    hash(0x5c, &hash(0x36, message))
}

/// The digits of bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A moment, for the dates of requests.
pub(crate) struct Moment {
    year: i64,
    month: i64,
    day: i64,
    weekday: usize,
    second: u64,
}

impl Moment {
    /// From seconds since 1970.
    pub(crate) fn of(seconds: u64) -> Moment {
        let days = (seconds / 86_400) as i64;
        let (year, month, day) = date(days);
        Moment {
            year,
            month,
            day,
            weekday: (days.rem_euclid(7)) as usize,
            second: seconds % 86_400,
        }
    }

    fn time(&self) -> (u64, u64, u64) {
        (self.second / 3600, self.second / 60 % 60, self.second % 60)
    }

    /// `20130524T000000Z`.
    pub(crate) fn basic(&self) -> String {
        let (hours, minutes, seconds) = self.time();
        format!("{}T{hours:02}{minutes:02}{seconds:02}Z", self.basic_day())
    }

    fn basic_day(&self) -> String {
        format!("{:04}{:02}{:02}", self.year, self.month, self.day)
    }

    /// `Fri, 24 May 2013 00:00:00 GMT`.
    pub(crate) fn http(&self) -> String {
        /// Day 0 was a Thursday.
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let (hours, minutes, seconds) = self.time();
        let month = MONTHS[(self.month - 1) as usize];
        let (weekday, day, year) = (DAYS[self.weekday], self.day, self.year);
        format!("{weekday}, {day:02} {month} {year:04} {hours:02}:{minutes:02}:{seconds:02} GMT")
    }
}

/// A key of S3.
pub(crate) struct S3Key<'a> {
    pub(crate) id: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) region: &'a str,
}

/// The value of `authorization` for a request with a body of this SHA-256, in hexadecimal. The
/// headers are those to sign, with names in lower case and in order, `host` among them.
pub(crate) fn s3_authorization(
    key: &S3Key<'_>,
    method: &str,
    url: &Url,
    headers: &[(String, String)],
    payload: &str,
    moment: &Moment,
) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| &**name).collect();
    let names = names.join(";");
    let lines = (headers.iter()).map(|(name, value)| format!("{name}:{}\n", value.trim()));
    let lines: String = lines.collect();
    let mut query: Vec<String> = url.query.split('&').map(str::to_owned).collect();
    query.sort_unstable();
    let query = query.join("&");
    let path = &url.path;
    let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
    let (day, region) = (moment.basic_day(), key.region);
    let scope = format!("{day}/{region}/s3/aws4_request");
    let digest = hexadecimal(&sha256(request.as_bytes()));
    let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{digest}", moment.basic());
    let start = format!("AWS4{}", key.secret).into_bytes();
    let steps = [day.as_str(), region, "s3", "aws4_request"];
    let signing = (steps.iter()).fold(start, |key, step| hmac(&key, step.as_bytes()).to_vec());
    let signature = hexadecimal(&hmac(&signing, to_sign.as_bytes()));
    let id = key.id;
    format!("AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}")
}

/// The value of `authorization` for a request about a blob, with a body of this many bytes (version
/// 2015-02-21 and later, shared key).
pub(crate) fn azure_authorization(
    account: &str,
    key: &[u8],
    method: &str,
    url: &Url,
    headers: &[(String, String)],
    body_bytes: usize,
) -> String {
    let value = |wanted: &str| {
        let found = headers.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, value)| value)
    };
    let mut own: Vec<&(String, String)> = (headers.iter())
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .collect();
    own.sort_unstable();
    let own: String = own
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let len = match body_bytes {
        0 => String::new(),
        _ => body_bytes.to_string(),
    };
    let plain =
        |text: &str| String::from_utf8(decode(text).unwrap_or_default()).unwrap_or_default();
    let fields = url.query.split('&').filter_map(|it| it.split_once('='));
    let mut query: Vec<String> = fields
        .map(|(name, value)| format!("\n{name}:{}", plain(value)))
        .collect();
    query.sort_unstable();
    let to_sign = format!(
        "{method}\n\n\n{len}\n{}\n{}\n\n\n{}\n{}\n\n{}\n{own}/{account}{}{}",
        value("content-md5"),
        value("content-type"),
        value("if-match"),
        value("if-none-match"),
        value("range"),
        url.path,
        query.concat(),
    );
    let signature = base64::encode(&hmac(key, to_sign.as_bytes()));
    format!("SharedKey {account}:{signature}")
}

/// `a=b&c=d`, encoded.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| {
        format!("{name}={}", encode(value.as_bytes(), is_unreserved))
    };
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of RFC 4231, cases 2 and 6.
    #[test]
    fn hmac_is_that_of_rfc_4231() {
        let found = hmac(b"Jefe", b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hexadecimal(&found), expected);
        let message = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(hexadecimal(&hmac(&[0xaa; 131], message)), expected);
    }

    /// The example "GET Object" in "Signature Calculations for the Authorization Header" of
    /// Amazon's S3 API Reference.
    #[test]
    fn signature_of_s3_is_that_of_its_documentation() {
        let key = S3Key {
            id: "AKIAIOSFODNN7EXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
        };
        let url = Url::parse("https://examplebucket.s3.amazonaws.com/test.txt").unwrap();
        let moment = Moment::of(1_369_353_600);
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", &hexadecimal(&sha256(b""))),
            ("x-amz-date", &moment.basic()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            s3_authorization(
                &key,
                "GET",
                &url,
                &headers,
                &hexadecimal(&sha256(b"")),
                &moment
            ),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(moment.http(), "Fri, 24 May 2013 00:00:00 GMT");
    }
}
