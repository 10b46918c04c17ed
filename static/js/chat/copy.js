// The same request as a command and as a program. The key is never in it: $API_KEY stands in its place.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(base, body) {
  return [
    `curl -N ${quoted(`${base}/chat/completions`)} \\`,
    `  -H "Authorization: Bearer $API_KEY" \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d ${quoted(JSON.stringify(body, null, 1))}`,
  ].join("\n");
}

export function python(base, body) {
  const { messages, model, stream, stream_options, ...rest } = body;
  const words = Object.entries(rest).map(([name, value]) => `    ${name}=${literal(value)},`);
  return [
    "import os", "", "from openai import OpenAI", "",
    `client = OpenAI(base_url=${literal(base)}, api_key=os.environ["API_KEY"])`,
    "stream = client.chat.completions.create(", `    model=${literal(model)},`, `    messages=${literal(messages)},`,
    ...words, "    stream=True,", ")", "for chunk in stream:", "    if chunk.choices:",
    `        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
  ].join("\n");
}

// JSON of texts, numbers and lists reads the same in Python.
const literal = (value) => JSON.stringify(value);
