//! The server's side of HTTP: what comes in is waited for, carried out or refused, and answered or not.

use crate::api::Operations;
use crate::state::{Fate, Shared};
use crate::{ACCESS_KEY, SECRET_KEY};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// See the page above.
pub(crate) struct Front {
    service: S3Service,
    shared: Arc<Shared>,
}

/// Serves until it is told to stop, and returns when nothing is under way any more.
pub(crate) fn serve(
    runtime: Runtime,
    listener: TcpListener,
    front: Arc<Front>,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        tokio::select! {
            () = accept(&listener, &front) => {}
            _ = stopped => {}
        }
    });
    drop(listener);
    drop(runtime);
}

async fn accept(listener: &TcpListener, front: &Arc<Front>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(front.clone().connection(stream))),
            // Such as too many open files.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

impl Front {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let mut builder = S3ServiceBuilder::new(Operations(shared.clone()));
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        Self { service: builder.build(), shared }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |request: Request<Incoming>| {
            let front = self.clone();
            async move { front.answer(request).await }
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<HttpResponse> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        self.shared.travel(body.len() as u64).await;
        let fate = self.shared.fate();
        let answer = match fate {
            Fate::Unavailable => failure(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            _ => {
                let called = self.service.call(Request::from_parts(head, Body::from(body))).await;
                called.map_err(|e| io::Error::other(format!("{e:?}")))?
            }
        };
        self.shared.travel(answer.body().size_hint().lower()).await;
        match fate {
            Fate::Served | Fate::Unavailable => Ok(answer),
            // The connection ends with the error.
            Fate::Dropped => Err(io::Error::other("the answer is lost")),
            Fate::Failed => Ok(failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
        }
    }
}

fn failure(status: StatusCode, code: &str) -> HttpResponse {
    let mut answer = HttpResponse::new(Body::from(format!("<Error><Code>{code}</Code></Error>")));
    *answer.status_mut() = status;
    answer
}
