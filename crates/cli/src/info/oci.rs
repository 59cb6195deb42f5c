//! `restow info` of container images.

use std::io::Write;

use anyhow::Result;
use restow::info::{ContainerImagesInfo, Image, Layer, LayoutKind, ListedImage};
use tree::json::{Json, Object};

use crate::text;

/// The fields of a configuration that hold one string, by their names in it, in JSON and for
/// people; those in `config` come second.
const TEXTS: [(&str, &str, &str); 2] = [
    ("created", "created", "created"),
    ("author", "author", "author"),
];
const CONFIG_TEXTS: [(&str, &str, &str); 2] = [
    ("User", "user", "user"),
    ("WorkingDir", "working_dir", "working dir"),
];
/// Those with a list of strings.
const CONFIG_LISTS: [(&str, &str, &str); 3] = [
    ("Entrypoint", "entrypoint", "entrypoint"),
    ("Cmd", "command", "command"),
    ("Env", "environment", "environment"),
];

/// Prints the images, and the configuration and the layers of the one that is selected.
///
/// # Errors
/// The words cannot be written.
pub(crate) fn show(info: &ContainerImagesInfo, out: &mut dyn Write) -> Result<()> {
    let format = match info.kind {
        LayoutKind::Oci => "container images, OCI layout",
        LayoutKind::Docker => "container images, docker archive",
    };
    writeln!(out, "format          {format}")?;
    for image in &info.images {
        let names = image.names.iter().map(|name| of_text(name));
        let platform = image.platform.as_ref().map(|it| of_text(&it.to_string()));
        let parts: Vec<String> = names.chain(platform).collect();
        writeln!(out, "image           {}", parts.join(", "))?;
    }
    let Some((listed, image)) = &info.selected else {
        return Ok(());
    };
    if let Some(platform) = &listed.platform {
        writeln!(out, "platform        {}", of_text(&platform.to_string()))?;
    }
    if let Some(digest) = &image.digest {
        writeln!(out, "digest          {digest}")?;
    }
    for (name, _, text) in texts(image) {
        writeln!(out, "{name:<15} {}", of_text(text))?;
    }
    for (name, _, list) in lists(image) {
        for text in list {
            writeln!(out, "{name:<15} {}", of_text(&text))?;
        }
    }
    for (name, value) in labels(image) {
        writeln!(out, "label           {}={}", of_text(name), of_text(value))?;
    }
    for (number, layer) in (1..).zip(&image.layers) {
        let number = format!("layer {number}");
        let Layer {
            stored_bytes,
            media_type,
            ..
        } = layer;
        write!(
            out,
            "{number:<15} {}, {stored_bytes} bytes",
            text::of_layer(layer)
        )?;
        if !media_type.is_empty() {
            write!(out, ", {}", of_text(media_type))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn of_text(text: &str) -> String {
    text::of_name(text.as_bytes())
}

/// The same as an object.
pub(crate) fn object(info: &ContainerImagesInfo, object: Object) -> Object {
    let format = match info.kind {
        LayoutKind::Oci => "oci",
        LayoutKind::Docker => "docker-archive",
    };
    let object = object.text("format", format);
    let object = object.list("images", info.images.iter().map(of_listed));
    let Some((listed, image)) = &info.selected else {
        return object;
    };
    let mut object = object.object("selected", of_listed(listed));
    if let Some(digest) = &image.digest {
        object = object.text("digest", &digest.to_string());
    }
    for (_, key, text) in texts(image) {
        object = object.text(key, text);
    }
    for (_, key, list) in lists(image) {
        object = object.texts(key, list.iter().map(String::as_str));
    }
    let labels = labels(image);
    let labels = labels.map(|(name, value)| Object::new().text("name", name).text("value", value));
    let layers = image.layers.iter().map(|layer| {
        let mut object = Object::new();
        for (key, digest) in [("digest", &layer.digest), ("diff_id", &layer.diff_id)] {
            if let Some(digest) = digest {
                object = object.text(key, &digest.to_string());
            }
        }
        object
            .number("stored_bytes", layer.stored_bytes)
            .text("media_type", &layer.media_type)
    });
    object.list("labels", labels).list("layers", layers)
}

fn of_listed(image: &ListedImage) -> Object {
    let object = Object::new().texts("names", image.names.iter().map(String::as_str));
    match &image.platform {
        Some(platform) => object.text("platform", &platform.to_string()),
        None => object,
    }
}

/// The strings of the configuration: the name for people, the key of JSON, and the string.
fn texts(image: &Image) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
    let in_config = image.config.field("config");
    let outer = TEXTS.iter().map(|it| (it, Some(&image.config)));
    let inner = CONFIG_TEXTS.iter().map(move |it| (it, in_config));
    outer
        .chain(inner)
        .filter_map(|(&(field, key, name), value)| {
            let text = value?.text(field).filter(|text| !text.is_empty())?;
            Some((name, key, text))
        })
}

/// Its lists of strings, likewise.
fn lists(image: &Image) -> impl Iterator<Item = (&'static str, &'static str, Vec<String>)> {
    let config = image.config.field("config");
    let lists = CONFIG_LISTS.iter().map(move |&(field, key, name)| {
        let list = config.map(|config| config.texts(field));
        (name, key, list.unwrap_or_default())
    });
    lists.filter(|(.., list)| !list.is_empty())
}

fn labels(image: &Image) -> impl Iterator<Item = (&str, &str)> {
    let labels = image
        .config
        .field("config")
        .and_then(|config| config.field("Labels"));
    let fields: &[(String, Json)] = match labels {
        Some(Json::Object(fields)) => fields,
        _ => &[],
    };
    fields.iter().filter_map(|(name, value)| match value {
        Json::Text(text) => Some((name.as_str(), text.as_str())),
        _ => None,
    })
}
