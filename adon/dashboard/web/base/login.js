// Login with an institution's account: OpenID Connect's authorization-code flow with PKCE.

import { get, send, setToken } from "./api.js";

const PATH = "login"; // beside the page
const KEPT = "adon-login"; // what is kept in this tab while the provider asks

const back = () => location.origin + location.pathname;
const text = (bytes) =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => text(crypto.getRandomValues(new Uint8Array(32)));

/** With whom one may log in. Throws ApiError. */
export const logins = () => get(PATH);

/** Go to the provider's page; it leads back here. */
export async function begin({ issuer, page, client, scope }) {
  const [verifier, state] = [random(), random()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  sessionStorage.setItem(KEPT, JSON.stringify({ issuer, verifier, state, hash: location.hash }));
  const url = new URL(page);
  const given = {
    response_type: "code",
    client_id: client,
    redirect_uri: back(),
    scope,
    state,
    code_challenge: text(new Uint8Array(digest)),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(given)) url.searchParams.set(name, value);
  location.assign(url);
}

/** Where the provider has led back to this page: take the token, and go on where one was. What went
 * wrong, in words, or "". */
export async function finish() {
  const answer = new URLSearchParams(location.search);
  if (!answer.has("state")) return "";
  const kept = JSON.parse(sessionStorage.getItem(KEPT) || "{}");
  sessionStorage.removeItem(KEPT);
  history.replaceState(null, "", location.pathname + (kept.hash || location.hash));
  // Only an answer to a question of this tab: nobody is logged in as somebody else by a link.
  if (answer.get("state") !== kept.state) return "This login was started elsewhere. Start it again.";
  if (!answer.has("code")) return answer.get("error_description") || answer.get("error") || "The issuer sent no code.";
  const { issuer, verifier } = kept;
  try {
    const body = { issuer, verifier, code: answer.get("code"), redirect_uri: back() };
    setToken((await send("POST", PATH, body)).token);
    return "";
  } catch (error) {
    return error.message;
  }
}
