// Six tasks of a JavaScript client (first argument: openai or ai-sdk) before a gateway: prints what came of each as JSON.
// BASE_URL, KEY and LIMITED_KEY (its next call is refused) say where and as whom; SDKS is the folder with node_modules.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(`${process.env.SDKS}/`);
const load = async (name) => import(pathToFileURL(installed.resolve(name)).href);
const { BASE_URL, KEY, LIMITED_KEY, MODEL } = process.env;
const schema = {
    type: "object",
    properties: { late: { type: "boolean" }, days: { type: "integer" } },
    required: ["late", "days"],
    additionalProperties: false,
};
const order = { type: "object", properties: { order: { type: "integer" } }, required: ["order"] };

async function withOpenAI() {
    const { default: OpenAI } = await load("openai");
    const client = new OpenAI({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0 });
    const limited = new OpenAI({ baseURL: BASE_URL, apiKey: LIMITED_KEY, maxRetries: 0 });
    const asked = (content, more = {}) => ({ model: MODEL, messages: [{ role: "user", content }], ...more });
    return {
        chat: async () => (await client.chat.completions.create(asked("Hello"))).choices[0].message.content,
        stream: async () => {
            let text = "";
            const stream = await client.chat.completions.create(
                asked("Hello", { stream: true, stream_options: { include_usage: true } }),
            );
            for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
            return text;
        },
        tools: async () => {
            const runner = client.chat.completions.runTools(
                asked("tool", {
                    tools: [
                        {
                            type: "function",
                            function: { name: "days_late", parameters: order, parse: JSON.parse, function: () => "3" },
                        },
                    ],
                }),
            );
            return await runner.finalContent();
        },
        structured: async () => {
            const format = { type: "json_schema", json_schema: { name: "verdict", strict: true, schema } };
            const done = await client.chat.completions.parse(asked("json", { response_format: format }));
            return JSON.parse(done.choices[0].message.content);
        },
        limited: async () => {
            try {
                await limited.chat.completions.create(asked("Hello"));
            } catch (error) {
                return [error.status, Number(error.headers.get("retry-after")) > 0];
            }
        },
        cancelled: async () => {
            const stream = await client.chat.completions.create(asked("long", { stream: true }));
            for await (const chunk of stream) {
                if (chunk.choices[0]?.delta?.content) break;
            }
            stream.controller.abort();
            return "cancelled";
        },
    };
}

async function withAISDK() {
    const { generateText, streamText, Output, tool, jsonSchema, isStepCount } = await load("ai7");
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const settings = { name: "agentcore", baseURL: BASE_URL, supportsStructuredOutputs: true };
    const model = createOpenAICompatible({ ...settings, apiKey: KEY })(MODEL);
    const limited = createOpenAICompatible({ ...settings, apiKey: LIMITED_KEY })(MODEL);
    const once = { maxRetries: 0 };
    return {
        chat: async () => (await generateText({ model, prompt: "Hello", ...once })).text,
        stream: async () => {
            let text = "";
            for await (const part of streamText({ model, prompt: "Hello", ...once }).textStream) text += part;
            return text;
        },
        tools: async () => {
            const tools = { days_late: tool({ inputSchema: jsonSchema(order), execute: async () => "3" }) };
            return (await generateText({ model, prompt: "tool", tools, stopWhen: isStepCount(3), ...once })).text;
        },
        structured: async () => {
            const output = Output.object({ schema: jsonSchema(schema) });
            return (await generateText({ model, prompt: "json", output, ...once })).output;
        },
        limited: async () => {
            try {
                await generateText({ model: limited, prompt: "Hello", ...once });
            } catch (error) {
                return [error.statusCode, Number(error.responseHeaders["retry-after"]) > 0];
            }
        },
        cancelled: async () => {
            const stop = new AbortController();
            const options = { model, prompt: "long", abortSignal: stop.signal, onError: () => {}, ...once };
            for await (const part of streamText(options).textStream) {
                if (part) stop.abort();
            }
            return "cancelled";
        },
    };
}

const tasks = await { openai: withOpenAI, "ai-sdk": withAISDK }[process.argv[2]]();
const found = {};
for (const [name, task] of Object.entries(tasks)) {
    found[name] = await task().catch((error) => `${error.name}: ${error.message}`);
}
console.log(JSON.stringify(found));
process.exit(0);
