// One small agent by the AI SDK, version 5, 6 or 7 (first argument), reported by OpenTelemetry's exporter for JavaScript.
// OTEL_SERVICE_NAME and OTEL_EXPORTER_OTLP_… say as whom and to where, OPENAI_BASE_URL where the model answers.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const version = Number(process.argv[2]);
const installed = createRequire(`${process.env.SDKS}/`); // the folder with node_modules
const load = async (name) => import(pathToFileURL(installed.resolve(name)).href);

const { generateText, tool, stepCountIs, isStepCount, registerTelemetry } = await load(`ai${version}`);
const { createOpenAI } = await load(version === 5 ? "openai2" : "openai3");
const { z } = await load("zod");
const { NodeTracerProvider, BatchSpanProcessor } = await load("@opentelemetry/sdk-trace-node");
const { OTLPTraceExporter } = await load("@opentelemetry/exporter-trace-otlp-proto");
const { resourceFromAttributes } = await load("@opentelemetry/resources");

const resource = resourceFromAttributes({ "service.name": process.env.OTEL_SERVICE_NAME });
const provider = new NodeTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
provider.register();
if (version === 7) {
    const { OpenTelemetry } = await load("@ai-sdk/otel");
    registerTelemetry(new OpenTelemetry());
}

await generateText({
    model: createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY }).chat("small"),
    system: "You are kind.",
    prompt: "What is the weather in Bern?",
    temperature: 0.5,
    tools: {
        weather: tool({
            description: "The weather of a city.",
            inputSchema: z.object({ city: z.string() }),
            execute: async () => "sunny",
        }),
    },
    stopWhen: (stepCountIs ?? isStepCount)(3),
    experimental_telemetry: { isEnabled: true, functionId: "agent" },
});
await provider.shutdown();
