//! The operations of S3: each reads its request, has the objects carry it out, and writes the answer.

use crate::objects::{Condition, Page, Part, Search, Stored};
use crate::state::Shared;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CommonPrefix, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
    DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, PutObjectInput, PutObjectOutput, StreamingBlob, Timestamp, UploadPartInput,
    UploadPartOutput,
};
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

/// Keys and folders of a page of a listing, at most.
const PAGE_MAX: i32 = 1_000;

/// An answer of an operation.
type Answer<T> = S3Result<S3Response<T>>;

/// See the page above.
pub(crate) struct Operations(pub(crate) Arc<Shared>);

/// The bytes of a request.
async fn read(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let Some(body) = body else { return Ok(Bytes::new()) };
    let mut pieces: Vec<Bytes> =
        body.try_collect().await.map_err(|e| s3_error!(IncompleteBody, "the body cannot be read: {e}"))?;
    if pieces.len() == 1 {
        return Ok(pieces.remove(0));
    }
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    Ok(bytes.into())
}

fn only_if(if_match: Option<ETagCondition>) -> Condition {
    Condition { if_match, if_none_match: None }
}

/// A listed object.
fn listed((key, object): (String, Stored)) -> Object {
    Object {
        key: Some(key),
        size: Some(object.bytes.len() as i64),
        e_tag: Some(ETag::Strong(object.tag)),
        last_modified: Some(Timestamp::from(object.since)),
        ..Object::default()
    }
}

#[async_trait]
impl S3 for Operations {
    async fn create_bucket(&self, asked: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        self.0.count(|counts| counts.puts += 1);
        self.0.objects.lock().create_bucket(&asked.input.bucket)?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn head_bucket(&self, asked: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.0.count(|counts| counts.heads += 1);
        self.0.objects.lock().bucket(&asked.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn put_object(&self, asked: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let input = asked.input;
        let object = Stored::new(read(input.body).await?);
        self.0.count(|counts| {
            counts.puts += 1;
            counts.bytes_in += object.bytes.len() as u64;
        });
        let e_tag = Some(ETag::Strong(object.tag.clone()));
        let wanted = Condition { if_match: input.if_match, if_none_match: input.if_none_match };
        self.0.objects.lock().put((input.bucket, input.key), object, &wanted)?;
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    async fn get_object(&self, asked: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = asked.input;
        self.0.count(|counts| counts.gets += 1);
        let object = self.0.objects.lock().get(&(input.bucket, input.key), &only_if(input.if_match))?;
        let len = object.bytes.len() as u64;
        let range = input.range.map(|range| range.check(len)).transpose()?;
        if range.as_ref().is_some_and(|range| range.is_empty()) {
            return Err(s3_error!(InvalidRange));
        }
        let content_range =
            range.as_ref().map(|range| format!("bytes {}-{}/{len}", range.start, range.end - 1));
        let bytes = match range {
            Some(range) => object.bytes.slice(range.start as usize..range.end as usize),
            None => object.bytes,
        };
        self.0.count(|counts| counts.bytes_out += bytes.len() as u64);
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(bytes.len() as i64),
            content_range,
            e_tag: Some(ETag::Strong(object.tag)),
            last_modified: Some(Timestamp::from(object.since)),
            body: Some(StreamingBlob::from(Body::from(bytes))),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(&self, asked: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = asked.input;
        self.0.count(|counts| counts.heads += 1);
        let object = self.0.objects.lock().get(&(input.bucket, input.key), &only_if(input.if_match))?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(object.bytes.len() as i64),
            e_tag: Some(ETag::Strong(object.tag)),
            last_modified: Some(Timestamp::from(object.since)),
            ..HeadObjectOutput::default()
        }))
    }

    async fn delete_object(&self, asked: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let input = asked.input;
        self.0.count(|counts| counts.deletes += 1);
        self.0.objects.lock().delete(&(input.bucket, input.key), &only_if(input.if_match))?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, asked: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let input = asked.input;
        self.0.count(|counts| counts.deletes += 1);
        let mut objects = self.0.objects.lock();
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            objects.delete(&(input.bucket.clone(), object.key.clone()), &Condition::default())?;
            deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() });
        }
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), ..DeleteObjectsOutput::default() }))
    }

    async fn list_objects_v2(&self, asked: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = asked.input;
        self.0.count(|counts| counts.lists += 1);
        let max_keys = input.max_keys.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
        let search = Search {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone(),
            after: input.continuation_token.clone().or_else(|| input.start_after.clone()),
            max: max_keys as usize,
        };
        let Page { found, folders, next } = self.0.objects.lock().list(&input.bucket, &search)?;
        let key_count = (found.len() + folders.len()) as i32;
        let folders = folders.into_iter().map(|folder| CommonPrefix { prefix: Some(folder) });
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            max_keys: Some(max_keys),
            key_count: Some(key_count),
            contents: Some(found.into_iter().map(listed).collect()),
            common_prefixes: Some(folders.collect()),
            is_truncated: Some(next.is_some()),
            continuation_token: input.continuation_token,
            start_after: input.start_after,
            next_continuation_token: next,
            ..ListObjectsV2Output::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        asked: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let (bucket, key) = (asked.input.bucket, asked.input.key);
        self.0.count(|counts| counts.puts += 1);
        let upload = self.0.objects.lock().begin_upload((bucket.clone(), key.clone()))?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(upload),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(&self, asked: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let input = asked.input;
        let part = Part::new(read(input.body).await?);
        self.0.count(|counts| {
            counts.puts += 1;
            counts.bytes_in += part.bytes.len() as u64;
        });
        let e_tag = Some(ETag::Strong(part.tag()));
        let id = (input.bucket, input.key);
        self.0.objects.lock().put_part(&id, &input.upload_id, input.part_number, part)?;
        Ok(S3Response::new(UploadPartOutput { e_tag, ..UploadPartOutput::default() }))
    }

    async fn complete_multipart_upload(
        &self,
        asked: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let input = asked.input;
        self.0.count(|counts| counts.puts += 1);
        let parts = input.multipart_upload.and_then(|named| named.parts).unwrap_or_default();
        let named: Vec<_> = parts
            .into_iter()
            .map(|part| (part.part_number.unwrap_or_default(), part.e_tag.map(ETag::into_value)))
            .collect();
        let id = (input.bucket.clone(), input.key.clone());
        let wanted = Condition { if_match: input.if_match, if_none_match: input.if_none_match };
        let object = self.0.objects.lock().complete_upload(id, &input.upload_id, &named, &wanted)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(object.tag)),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        asked: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let input = asked.input;
        self.0.count(|counts| counts.deletes += 1);
        self.0.objects.lock().abort_upload(&(input.bucket, input.key), &input.upload_id)?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}
