# shellcheck shell=bash
# Writes a file of 1 MiB and the configuration of nginx, and sets `server`, its command, `address`, where it
# serves the file without sendfile, and `proxy`, where it fetches the file from `address` for each request.
# shellcheck source=peers/apps/common.sh
. "$(dirname "$0")/../common.sh"
PATH=$PATH:/usr/sbin
needs nginx nginx-light
needs ab apache2-utils

address=127.0.0.1:${PORT:-17081}
proxy=127.0.0.1:$((${PORT:-17081} + 3))
# nginx keeps connections to a group of servers only, which needs a name.
group=origin
head -c 1048576 /dev/urandom >"$folder/file"
# The worker runs as another user if the master is root.
chmod 755 "$folder"
cat >"$folder/conf" <<CONF
daemon off;
worker_processes 1;
pid $folder/pid;
error_log stderr notice;
events {}
http {
  access_log off;
  sendfile off;
  output_buffers 2 512k;
  keepalive_requests 100000;
  client_body_temp_path $folder/body;
  proxy_temp_path $folder/proxy;
  fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi;
  scgi_temp_path $folder/scgi;
  upstream $group { server $address; keepalive 16; }
  server { listen $address; root $folder; }
  server {
    listen $proxy;
    location / {
      proxy_pass http://$group;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffers 32 64k;
      proxy_max_temp_file_size 0;
    }
  }
}
CONF
# shellcheck disable=SC2034 # The scripts that read this file use it.
server="$on_server nginx -p $folder -c $folder/conf"
