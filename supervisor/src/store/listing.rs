//! One page of a bucket's listing, as ListObjectsV2 answers it.

use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::error::{Kind, StoreError};

/// An object as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its whole key.
    pub key: String,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its ETag, quotes included; none where the server lists none.
    pub etag: Option<String>,
    /// When it was changed, as the server writes it.
    pub changed: String,
}

/// One page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Its objects.
    pub objects: Vec<Listed>,
    /// What the next page is asked for with; none after the last.
    pub next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    contents: Vec<Contents>,
    encoding_type: Option<String>,
    #[serde(default)]
    is_truncated: bool,
    next_continuation_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Contents {
    key: String,
    size: u64,
    #[serde(rename = "ETag")]
    etag: Option<String>,
    #[serde(default)]
    last_modified: String,
}

impl Page {
    /// Reads an answer. Keys come as they are, or encoded where the answer says so: `+` is a space then.
    ///
    /// # Errors
    /// [`Kind::Refused`] where it is no answer to a listing.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let refused = |why: String| StoreError::new(Kind::Refused, format!("the listing cannot be read: {why}"));
        let answer: Answer = quick_xml::de::from_str(text).map_err(|error| refused(error.to_string()))?;
        let is_encoded = answer.encoding_type.as_deref() == Some("url");
        let key = |key: String| {
            if !is_encoded {
                return Ok(key);
            }
            let decoded = percent_decode_str(&key.replace('+', " ")).decode_utf8().map(String::from);
            decoded.map_err(|_| refused(format!("key `{key}` is not UTF-8")))
        };
        let listed = |contents: Contents| {
            let Contents { key: raw, size: bytes, etag, last_modified: changed } = contents;
            Ok(Listed { key: key(raw)?, bytes, etag: etag.filter(|etag| !etag.is_empty()), changed })
        };
        let objects = answer.contents.into_iter().map(listed).collect::<Result<_, StoreError>>()?;
        let next = answer.next_continuation_token.filter(|token| answer.is_truncated && !token.is_empty());
        Ok(Self { objects, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(inside: &str) -> Result<Page, StoreError> {
        Page::parse(&format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name>{inside}</ListBucketResult>"
        ))
    }

    fn object(key: &str) -> String {
        format!(
            "<Contents><Key>{key}</Key><LastModified>x</LastModified><ETag>&quot;ab&quot;</ETag><Size>7</Size></Contents>"
        )
    }

    #[test]
    fn objects_come_with_length_and_quoted_etag() {
        let page =
            page(&format!("<KeyCount>1</KeyCount>{}<IsTruncated>false</IsTruncated>", object("a/b.jpg"))).unwrap();
        assert_eq!(
            page.objects,
            [Listed { key: "a/b.jpg".into(), bytes: 7, etag: Some("\"ab\"".into()), changed: "x".into() }]
        );
        assert_eq!(page.next, None);
    }

    #[test]
    fn keys_are_decoded_where_the_answer_says_so_and_only_there() {
        let key = |inside: &str| page(inside).unwrap().objects.remove(0).key;
        let encoded = "%C3%A4+b%2Bc%252F%0A.jpg";
        assert_eq!(key(&format!("{}<EncodingType>url</EncodingType>", object(encoded))), "ä b+c%2F\n.jpg");
        assert_eq!(key(&object("a+b%2Fc &amp; d.jpg")), "a+b%2Fc & d.jpg");
    }

    #[test]
    fn page_names_the_next_one_only_where_there_is_more() {
        let token = "<NextContinuationToken>t==</NextContinuationToken>";
        assert_eq!(page(&format!("<IsTruncated>true</IsTruncated>{token}")).unwrap().next.as_deref(), Some("t=="));
        assert_eq!(page(token).unwrap().next, None);
        assert_eq!(page("").unwrap(), Page::default());
    }

    #[test]
    fn what_is_no_listing_is_refused() {
        assert_eq!(Page::parse("<html><p>").unwrap_err().kind, Kind::Refused);
        assert_eq!(page("<Contents><Key>a</Key></Contents>").unwrap_err().kind, Kind::Refused);
        assert_eq!(
            page(&format!("{}<EncodingType>url</EncodingType>", object("%FF"))).unwrap_err().kind,
            Kind::Refused
        );
    }
}
