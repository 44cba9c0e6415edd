// @azure/storage-file-share of npm: node node_client.mjs
import { ShareServiceClient, StorageSharedKeyCredential } from "@azure/storage-file-share";

const { ENDPOINT, ACCOUNT, KEY, STYLE } = process.env;
const service = new ShareServiceClient(ENDPOINT, new StorageSharedKeyCredential(ACCOUNT, KEY));
const share = service.getShareClient(`clients-node-${STYLE}`);
const root = share.rootDirectoryClient;
const data = Buffer.alloc(9 << 20, "0123456789abcdef");
const equal = (a, b) => { if (a !== b) throw new Error(`${a} is not ${b}`); };

const steps = {
  "create": async () => { await share.create(); await share.createDirectory("a"); },
  "upload in parallel": () => share.getDirectoryClient("a").getFileClient("ü 1").uploadData(data, { concurrency: 4 }),
  "download": async () => {
    const got = await share.getDirectoryClient("a").getFileClient("ü 1").downloadToBuffer(undefined, undefined, { concurrency: 4 });
    equal(got.equals(data), true);
  },
  "listing": async () => {
    const names = [];
    for await (const each of share.getDirectoryClient("a").listFilesAndDirectories()) names.push(each.name);
    equal(names.join(), "ü 1");
  },
  "properties": async () => {
    const file = root.getFileClient("p");
    await file.create(100, { metadata: { one: "1" }, fileHttpHeaders: { fileContentType: "text/plain" } });
    const found = await file.getProperties();
    equal(`${found.contentLength} ${found.contentType} ${found.metadata.one}`, "100 text/plain 1");
  },
  "ranges": async () => {
    const file = root.getFileClient("p");
    await file.uploadRange("data", 0, 4);
    equal((await file.getRangeList()).rangeList.length, 1);
    await file.clearRange(0, 100);
  },
  "copy": async () => equal((await root.getFileClient("c").startCopyFromURL(root.getFileClient("p").url)).copyStatus, "success"),
  "rename": async () => { await root.getFileClient("c").rename("moved"); equal((await root.getFileClient("moved").getProperties()).contentLength, 100); },
  "lease": async () => { const held = root.getFileClient("p").getShareLeaseClient(); await held.acquireLease(-1); await held.releaseLease(); },
  "snapshot": async () => {
    const { snapshot } = await share.createSnapshot();
    await root.getFileClient("p").delete();
    equal((await share.withSnapshot(snapshot).rootDirectoryClient.getFileClient("p").getProperties()).contentLength, 100);
  },
  "handles": async () => { await root.forceCloseAllHandles(); },
  "delete": () => share.delete({ deleteSnapshots: "include" }),
};

let failed = 0;
for (const [name, step] of Object.entries(steps)) {
  try { await step(); console.log(`ok ${name}`); }
  catch (error) { failed = 1; console.log(`FAIL ${name}: ${String(error.message).replace(/\s+/g, " ").slice(0, 200)}`); }
}
process.exit(failed);
