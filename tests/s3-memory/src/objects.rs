//! What a server holds. Each call judges a request and carries it out, under the caller's lock.

use bytes::Bytes;
use s3s::crypto::{Checksum, Md5};
use s3s::dto::ETagCondition;
use s3s::{S3Result, s3_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::SystemTime;

/// A part is at least this long, but for an object's last one.
const PART_BYTES_MIN: usize = 5 << 20;

/// The name of an object: its bucket and its key.
pub(crate) type Id = (String, String);

/// The buckets, objects and unfinished uploads of a server, which another server can go on with.
#[derive(Clone, Default, Debug)]
pub struct Objects {
    buckets: BTreeSet<String>,
    objects: BTreeMap<Id, Stored>,
    uploads: BTreeMap<String, Upload>,
    uploads_begun: u64,
}

/// An object.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) bytes: Bytes,
    /// The entity tag, without quotes. Equal bytes that came by one put have equal tags.
    pub(crate) tag: String,
    pub(crate) since: SystemTime,
}

/// A part of an object that is not there yet.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    digest: [u8; 16],
}

/// An object that comes by parts.
#[derive(Clone, Debug)]
struct Upload {
    id: Id,
    parts: BTreeMap<i32, Part>,
}

/// What a request demands of the object that lies there.
#[derive(Default, Debug)]
pub(crate) struct Condition {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
}

/// A page of a listing that is asked for.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) prefix: String,
    /// Keys that go on behind it are listed as one folder.
    pub(crate) delimiter: Option<String>,
    /// The last key or folder before the page.
    pub(crate) after: Option<String>,
    /// Keys and folders of the page, at most.
    pub(crate) max: usize,
}

/// A page of a listing.
#[derive(Default, Debug)]
pub(crate) struct Page {
    pub(crate) found: Vec<(String, Stored)>,
    pub(crate) folders: Vec<String>,
    /// The last key or folder, if there are more.
    pub(crate) next: Option<String>,
}

impl Stored {
    pub(crate) fn new(bytes: Bytes) -> Self {
        let tag = hex(Md5::checksum(&bytes));
        Self { bytes, tag, since: SystemTime::now() }
    }
}

impl Part {
    pub(crate) fn new(bytes: Bytes) -> Self {
        let digest = Md5::checksum(&bytes);
        Self { bytes, digest }
    }

    pub(crate) fn tag(&self) -> String {
        hex(self.digest)
    }
}

fn hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Condition {
    fn judge(&self, there: Option<&Stored>) -> S3Result<()> {
        let is_met = |wanted: &ETagCondition, object: &Stored| {
            wanted.is_any() || wanted.as_etag().is_some_and(|tag| tag.value() == object.tag)
        };
        if let Some(unwanted) = &self.if_none_match
            && there.is_some_and(|object| is_met(unwanted, object))
        {
            return Err(s3_error!(PreconditionFailed, "If-None-Match: there is such an object"));
        }
        if let Some(wanted) = &self.if_match {
            let object = there.ok_or_else(|| s3_error!(NoSuchKey, "If-Match: there is no such object"))?;
            if !is_met(wanted, object) {
                return Err(s3_error!(PreconditionFailed, "If-Match: the object is another"));
            }
        }
        Ok(())
    }
}

impl Search {
    /// The folder that a key with the prefix is in.
    fn folder<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let at = key[self.prefix.len()..].find(delimiter)?;
        Some(&key[..self.prefix.len() + at + delimiter.len()])
    }
}

impl Objects {
    pub(crate) fn have_bucket(&mut self, bucket: &str) {
        self.buckets.insert(bucket.to_owned());
    }

    pub(crate) fn create_bucket(&mut self, bucket: &str) -> S3Result<()> {
        match self.buckets.insert(bucket.to_owned()) {
            true => Ok(()),
            false => Err(s3_error!(BucketAlreadyOwnedByYou, "bucket {bucket}")),
        }
    }

    pub(crate) fn bucket(&self, bucket: &str) -> S3Result<()> {
        match self.buckets.contains(bucket) {
            true => Ok(()),
            false => Err(s3_error!(NoSuchBucket, "bucket {bucket}")),
        }
    }

    pub(crate) fn put(&mut self, id: Id, object: Stored, wanted: &Condition) -> S3Result<()> {
        self.bucket(&id.0)?;
        wanted.judge(self.objects.get(&id))?;
        self.objects.insert(id, object);
        Ok(())
    }

    pub(crate) fn get(&self, id: &Id, wanted: &Condition) -> S3Result<Stored> {
        self.bucket(&id.0)?;
        let object = self.objects.get(id).ok_or_else(|| s3_error!(NoSuchKey, "key {}", id.1))?;
        wanted.judge(Some(object))?;
        Ok(object.clone())
    }

    /// Deletes an object; without a condition also one that is not there.
    pub(crate) fn delete(&mut self, id: &Id, wanted: &Condition) -> S3Result<()> {
        self.bucket(&id.0)?;
        wanted.judge(self.objects.get(id))?;
        self.objects.remove(id);
        Ok(())
    }

    pub(crate) fn list(&self, bucket: &str, search: &Search) -> S3Result<Page> {
        self.bucket(bucket)?;
        let id = |key: &str| (bucket.to_owned(), key.to_owned());
        let from = match &search.after {
            Some(after) if *after >= search.prefix => Bound::Excluded(id(after)),
            _ => Bound::Included(id(&search.prefix)),
        };
        let behind = self.objects.range::<Id, _>((from, Bound::Unbounded));
        let listed = behind.take_while(|(id, _)| id.0 == bucket && id.1.starts_with(&search.prefix));
        let mut page = Page::default();
        let mut last = search.after.as_deref().unwrap_or_default();
        for (id, object) in listed {
            let folder = search.folder(&id.1);
            if folder == Some(last) {
                continue;
            }
            if page.found.len() + page.folders.len() == search.max {
                page.next = Some(last.to_owned()).filter(|_| search.max > 0);
                break;
            }
            match folder {
                Some(folder) => page.folders.push(folder.to_owned()),
                None => page.found.push((id.1.clone(), object.clone())),
            }
            last = folder.unwrap_or(&id.1);
        }
        Ok(page)
    }

    /// Begins an upload, and says its name.
    pub(crate) fn begin_upload(&mut self, id: Id) -> S3Result<String> {
        self.bucket(&id.0)?;
        self.uploads_begun += 1;
        let name = format!("upload-{}", self.uploads_begun);
        self.uploads.insert(name.clone(), Upload { id, parts: BTreeMap::new() });
        Ok(name)
    }

    pub(crate) fn put_part(&mut self, id: &Id, upload: &str, number: i32, part: Part) -> S3Result<()> {
        if !(1..=10_000).contains(&number) {
            return Err(s3_error!(InvalidArgument, "part {number} is not one of 1 to 10000"));
        }
        let found = self.uploads.get_mut(upload).filter(|found| found.id == *id);
        let found = found.ok_or_else(|| s3_error!(NoSuchUpload, "upload {upload}"))?;
        found.parts.insert(number, part);
        Ok(())
    }

    /// Makes the parts that are named the object, by number and tag.
    pub(crate) fn complete_upload(
        &mut self,
        id: Id,
        upload: &str,
        named: &[(i32, Option<String>)],
        wanted: &Condition,
    ) -> S3Result<Stored> {
        let object = self.upload(&id, upload)?.whole(named)?;
        self.put(id, object.clone(), wanted)?;
        self.uploads.remove(upload);
        Ok(object)
    }

    pub(crate) fn abort_upload(&mut self, id: &Id, upload: &str) -> S3Result<()> {
        self.upload(id, upload)?;
        self.uploads.remove(upload);
        Ok(())
    }

    fn upload(&self, id: &Id, upload: &str) -> S3Result<&Upload> {
        let found = self.uploads.get(upload).filter(|found| found.id == *id);
        found.ok_or_else(|| s3_error!(NoSuchUpload, "upload {upload}"))
    }
}

impl Upload {
    /// The object of these parts.
    fn whole(&self, named: &[(i32, Option<String>)]) -> S3Result<Stored> {
        if named.is_empty() {
            return Err(s3_error!(InvalidPart, "no part is named"));
        }
        if !named.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(s3_error!(InvalidPartOrder));
        }
        let (mut bytes, mut digests) = (Vec::new(), Vec::new());
        for (at, (number, tag)) in named.iter().enumerate() {
            let part = self.parts.get(number);
            let part = part.filter(|part| tag.as_ref().is_none_or(|tag| *tag == part.tag()));
            let part = part.ok_or_else(|| s3_error!(InvalidPart, "part {number} is missing or another"))?;
            if at + 1 < named.len() && part.bytes.len() < PART_BYTES_MIN {
                return Err(s3_error!(EntityTooSmall, "part {number} has {} bytes", part.bytes.len()));
            }
            bytes.extend_from_slice(&part.bytes);
            digests.extend_from_slice(&part.digest);
        }
        let tag = format!("{}-{}", hex(Md5::checksum(&digests)), named.len());
        Ok(Stored { bytes: bytes.into(), tag, since: SystemTime::now() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pages of a listing, with so many entries each: keys and folders.
    fn listed(objects: &Objects, prefix: &str, delimiter: Option<&str>, max: usize) -> [Vec<String>; 2] {
        let delimiter = delimiter.map(str::to_owned);
        let mut search = Search { prefix: prefix.to_owned(), delimiter, after: None, max };
        let (mut keys, mut folders) = (Vec::new(), Vec::new());
        loop {
            let page = objects.list("bucket", &search).unwrap();
            assert!(page.found.len() + page.folders.len() <= max);
            keys.extend(page.found.into_iter().map(|(key, _)| key));
            folders.extend(page.folders);
            match page.next {
                Some(next) => search.after = Some(next),
                None => return [keys, folders],
            }
        }
    }

    #[test]
    fn pages_of_any_size_list_the_same_keys_and_folders() {
        let mut objects = Objects::default();
        objects.have_bucket("bucket");
        objects.have_bucket("bucket-2");
        let keys = ["a", "a-b", "a/1", "a/2", "a/b/3", "a0", "b/1", "c"];
        for key in keys {
            for bucket in ["bucket", "bucket-2"] {
                let id = (bucket.to_owned(), key.to_owned());
                objects.put(id, Stored::new(Bytes::new()), &Condition::default()).unwrap();
            }
        }
        for max in [1, 2, 3, 100] {
            assert_eq!(listed(&objects, "", None, max), [keys.map(str::to_owned).to_vec(), Vec::new()]);
            let both = |prefix: &str| listed(&objects, prefix, Some("/"), max).map(|names| names.join(" "));
            assert_eq!(both(""), ["a a-b a0 c", "a/ b/"]);
            assert_eq!(both("a/"), ["a/1 a/2", "a/b/"]);
            assert_eq!(both("d"), ["", ""]);
        }
        let search = Search { prefix: String::new(), delimiter: None, after: None, max: 0 };
        let none = objects.list("bucket", &search).unwrap();
        assert!(none.found.is_empty() && none.next.is_none());
        assert!(objects.list("bucket-3", &search).is_err());
    }
}
