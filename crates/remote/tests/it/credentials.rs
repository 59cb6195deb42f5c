//! The places of credentials, and the requests that are signed with them.

use std::fs;

use remote::{RemoteOptions, Surroundings};
use testkit::{Manner, RangeServer, TempDir};
use tree::ReadAt;

use crate::{object, open_with, refusal};

pub(crate) fn options(variables: &[(&str, &str)]) -> RemoteOptions {
    let variables: Vec<(String, String)> = (variables.iter())
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let variable = move |name: &str| {
        let found = variables.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    RemoteOptions::default().surroundings(Surroundings::new(variable, || 1_369_353_600))
}

/// A server that gives the object for a request that has these words in its head, and denies
/// others.
fn guard(words: &'static str) -> RangeServer {
    RangeServer::with(object(300_000), move |_, head| Manner {
        refusal: (!head.contains(words)).then(|| (403, String::new())),
        ..Manner::default()
    })
}

fn reads(address: &str, options: &RemoteOptions) {
    let file = open_with(address, options).unwrap();
    let mut bytes = vec![0; 300_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, object(300_000));
}

#[test]
fn s3_signs_with_keys_of_the_environment_and_of_files() {
    let server = guard("authorization: aws4-hmac-sha256 credential=me/20130524/eu-west-1/s3/");
    let endpoint = server.url("");
    let here = ("AWS_ENDPOINT_URL", &*endpoint);
    let dir = TempDir::new();
    fs::create_dir(dir.join(".aws")).unwrap();
    let keys = "[other]\naws_access_key_id = me\naws_secret_access_key = secret\n";
    fs::write(dir.join(".aws/credentials"), keys).unwrap();
    fs::write(
        dir.join(".aws/config"),
        "[profile other]\nregion = eu-west-1\n",
    )
    .unwrap();
    let home = ("HOME", dir.path().to_str().unwrap());
    let id = ("AWS_ACCESS_KEY_ID", "me");
    let secret = ("AWS_SECRET_ACCESS_KEY", "secret");
    let region = ("AWS_REGION", "eu-west-1");
    reads("s3://b/a:b", &options(&[here, id, secret, region]));
    reads(
        "s3://b/a",
        &options(&[here, home, ("AWS_PROFILE", "other")]),
    );
    let token = ("AWS_SESSION_TOKEN", "temporary");
    reads("s3://b/a", &options(&[here, id, secret, region, token]));
    let heads = server.heads();
    assert!(heads[0].starts_with("get /b/a%3ab http"));
    assert!(
        heads
            .last()
            .unwrap()
            .contains("x-amz-security-token: temporary")
    );
    let signed = "signedheaders=host;if-match;range;x-amz-content-sha256;x-amz-date,";
    assert!(heads[1].contains(signed), "{}", heads[1]);
    // Without a key, the error says where one was looked for.
    let words = refusal(
        "s3://b/a",
        &options(&[here, ("AWS_EC2_METADATA_DISABLED", "true")]),
    );
    assert!(words.starts_with("access denied (status 403"), "{words}");
    assert!(
        words.contains("no credentials in AWS_ACCESS_KEY_ID"),
        "{words}"
    );
    let words = refusal(
        "s3://b/a",
        &options(&[here, id, ("AWS_SECRET_ACCESS_KEY", "hush")]),
    );
    assert!(
        words.ends_with("the credentials are those of AWS_ACCESS_KEY_ID"),
        "{words}"
    );
    assert!(!words.contains("hush"));
}

/// A machine gives a token, the name of its role, and the key of that.
#[test]
fn s3_signs_with_the_role_of_a_machine() {
    // The bodies of its answers are objects of their own.
    let machine = RangeServer::with(Vec::new(), |number, head| {
        let text = match number {
            0 => {
                assert!(head.starts_with("put /latest/api/token"));
                "the-token"
            }
            1 => {
                assert!(head.contains("x-aws-ec2-metadata-token: the-token"));
                "role\n"
            }
            _ => {
                assert!(head.starts_with("get /latest/meta-data/iam/security-credentials/role "));
                r#"{"AccessKeyId": "me", "SecretAccessKey": "s", "Token": "t"}"#
            }
        };
        Manner {
            object: Some(text.as_bytes().to_vec().into()),
            ..Manner::default()
        }
    });
    let server = guard("x-amz-security-token: t\r\n");
    let endpoint = server.url("");
    let metadata = machine.url("");
    let found = options(&[
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata),
    ]);
    reads("s3://b/a", &found);
    assert_eq!(machine.requests(), 3);
}

/// A bucket of another region says so.
#[test]
fn s3_follows_a_bucket_to_its_region() {
    let server = RangeServer::with(object(300_000), |_, head| {
        let is_there = head.contains("/eu-west-3/s3/");
        Manner {
            refusal: (!is_there).then(|| (400, "x-amz-bucket-region: eu-west-3\r\n".to_owned())),
            ..Manner::default()
        }
    });
    let endpoint = server.url("");
    let keys = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ACCESS_KEY_ID", "me"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    reads("s3://b/a", &options(&keys));
    assert!(server.requests() <= 4);
}

#[test]
fn google_takes_tokens() {
    let server = guard("authorization: bearer the-token\r\n");
    let host = server.url("");
    let host = host.trim_end_matches('/');
    let here = ("STORAGE_EMULATOR_HOST", host);
    reads(
        "gs://b/a",
        &options(&[here, ("GOOGLE_OAUTH_ACCESS_TOKEN", "the-token")]),
    );
    assert!(server.heads()[0].contains("accept-encoding: gzip"));
    let words = refusal("gs://b/a", &options(&[here]));
    assert!(
        words.contains("no credentials in GOOGLE_OAUTH_ACCESS_TOKEN"),
        "{words}"
    );
    let dir = TempDir::new();
    let file = dir.join("federated.json");
    fs::write(&file, r#"{"type": "external_account"}"#).unwrap();
    let named = ("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap());
    let words = refusal("gs://b/a", &options(&[named]));
    assert!(
        words.contains("\"external_account\"") && words.contains("print-access-token"),
        "{words}"
    );
}

#[test]
fn azure_takes_keys_signatures_and_tokens() {
    let server = guard("x-ms-version: ");
    let endpoint = server.url("");
    let account = ("AZURE_STORAGE_ACCOUNT", "me");
    let here = ("AZURE_STORAGE_ENDPOINT", &*endpoint);
    let key = ("AZURE_STORAGE_KEY", "c2VjcmV0");
    reads("az://c/a", &options(&[account, here, key]));
    assert!(server.heads()[0].contains("authorization: sharedkey me:"));
    let signature = ("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=x%3D");
    reads("az://c/a", &options(&[account, here, signature]));
    assert!(
        server
            .heads()
            .last()
            .unwrap()
            .starts_with("get /c/a?sv=1&sig=x%3d http")
    );
    reads(
        "az://c/a",
        &options(&[account, here, ("AZURE_STORAGE_TOKEN", "t")]),
    );
    assert!(
        server
            .heads()
            .last()
            .unwrap()
            .contains("authorization: bearer t")
    );
    let connection = format!("AccountName=me;AccountKey=c2VjcmV0;BlobEndpoint={endpoint}");
    reads(
        "az://c/a",
        &options(&[("AZURE_STORAGE_CONNECTION_STRING", &connection)]),
    );
    let words = refusal("az://c/a", &options(&[]));
    assert_eq!(words, "AZURE_STORAGE_ACCOUNT names no account");
}
